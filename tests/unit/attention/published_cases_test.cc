// Refusals that users met, by the threads in which they were published, and the rules
// just below and just at their thresholds.

#include <gmock/gmock.h>

#include "tests/unit/attention/problems.h"

namespace kiln::attention {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// NVIDIA/TransformerEngine #1591: H100, fp16, sbhd, 192 with 128, causal, training.
TEST(PublishedCases, BackwardWithAHeadDimensionOver128OnHopper) {
  Problem problem = with_dims(base(Pass::kBackward), 192, 128);
  problem.dtype = DType::kF16;
  problem.layout = Layout::kSbhd;
  problem.mask = Mask::kCausal;
  set_strides(problem);
  const Finding found = finding(problem, {9, 0}, "9.1", "head_dim.backward.hopper");
  EXPECT_THAT(found.remedy, HasSubstr("upgrade cuDNN to 9.5.0 or later"));
  EXPECT_THAT(found.remedy, Not(HasSubstr("pad")));
  EXPECT_THAT(refusals(problem, {9, 0}, "9.5"), IsEmpty());
  EXPECT_THAT(refusals(problem, {9, 0}, "9.19"), IsEmpty());  // the bug's exemption
  problem.pass = Pass::kForward;
  EXPECT_THAT(refusals(problem, {9, 0}, "9.1"), IsEmpty());
}

// NVIDIA/TransformerEngine #1276: what all_gather asks of the second rank's last chunk.
TEST(PublishedCases, BottomRightMaskOfLlama7B) {
  Problem problem = with_lengths(base(), 1024, 4096);
  problem.heads = problem.kv_heads = 32;
  problem.mask = Mask::kCausalBottomRight;
  set_strides(problem);
  EXPECT_THAT(refusals(problem, {9, 0}, "9.1"), Contains("mask.causal_bottom_right"));
  EXPECT_EQ(evaluate(problem, {9, 0}, version("9.1")).first_supported, version("9.3"));
  EXPECT_THAT(refusals(problem, {9, 0}, "9.3"), IsEmpty());
}

// jax-ml/jax #27599: two GPUs in one process, in CUDA graphs.
TEST(PublishedCases, OnePlanForTwoGpusInCudaGraphs) {
  Problem problem = base();
  problem.capture = true;
  const Finding found = finding(problem, {8, 6}, "9.1", "capture.jax.devices");
  EXPECT_THAT(found.remedy, HasSubstr("9.8.0"));
  EXPECT_TRUE(evaluate(problem, {8, 6}, version("9.1")).supported);
  EXPECT_THAT(evaluate(problem, {8, 6}, version("9.8")).policies, IsEmpty());
}

struct Threshold {
  const char* rule;
  ComputeCapability arch;
  const char* below;
  const char* at;
  Problem problem;
};

template <typename Edit>
Problem edited(Pass pass, Edit edit) {
  Problem problem = base(pass);
  edit(problem);
  set_strides(problem);
  return problem;
}

std::vector<Threshold> thresholds() {
  using P = Problem&;
  constexpr Pass kFwd = Pass::kForward;
  constexpr Pass kBwd = Pass::kBackward;
  const auto dims = [](Pass pass, std::int64_t qk, std::int64_t v) {
    return with_dims(base(pass), qk, v);
  };
  return {
      {"version.first", {9, 0}, "8.8.0", "8.9.0", with_mask(base(), Mask::kCausal)},
      {"arch.ampere_and_ada",
       {8, 9},
       "8.9.2",
       "8.9.3",
       with_mask(base(), Mask::kCausal)},
      {"arch.blackwell", {10, 0}, "9.6", "9.7", base()},
      {"arch.10_3", {10, 3}, "9.10.2", "9.11", base()},
      {"arch.12", {12, 0}, "9.18.0", "9.18.1", base()},
      {"arch.12", {12, 1}, "9.18.0", "9.18.1", base()},
      {"version.9_10_0", {9, 0}, "9.10.1", "9.10.2", base()},
      {"head_dim.forward.ampere", {8, 0}, "9.9", "9.10.2", dims(kFwd, 256, 256)},
      {"head_dim.forward.hopper", {9, 0}, "9.0", "9.1", dims(kFwd, 256, 256)},
      {"head_dim.forward.hopper.over_256",
       {9, 0},
       "9.9",
       "9.10.2",
       dims(kFwd, 576, 512)},
      {"head_dim.forward.blackwell", {10, 0}, "9.8", "9.9", dims(kFwd, 192, 128)},
      {"head_dim.forward.blackwell.decode",
       {10, 0},
       "9.9",
       "9.10.2",
       with_lengths(dims(kFwd, 192, 128), 1, 1024)},
      {"head_dim.backward.hopper", {9, 0}, "9.4", "9.5", dims(kBwd, 256, 256)},
      {"head_dim.backward.blackwell.192_128",
       {10, 0},
       "9.10.2",
       "9.11",
       dims(kBwd, 192, 128)},
      {"head_dim.backward.blackwell.256",
       {10, 0},
       "9.22",
       "9.23",
       dims(kBwd, 256, 256)},
      {"head_dim.backward.blackwell.256.thd",
       {10, 0},
       "9.24",
       "9.25",
       edited(kBwd,
              [](P p) {
                p.dqk = p.dv = 256;
                p.layout = Layout::kThd;
                p.mask = Mask::kPadding;
              })},
      {"mask.before_8_9_6", {9, 0}, "8.9.5", "8.9.6", base()},
      {"mask.causal_bottom_right",
       {8, 0},
       "9.2",
       "9.3",
       with_mask(base(), Mask::kCausalBottomRight)},
      {"mask.padding_causal_bottom_right",
       {9, 0},
       "9.5",
       "9.6",
       with_mask(base(), Mask::kPaddingCausalBottomRight)},
      {"mask.bottom_right.multiple_of_64",
       {9, 0},
       "9.5",
       "9.6",
       with_lengths(with_mask(base(), Mask::kCausalBottomRight), 100, 200)},
      {"sequence.multiple_of_64",
       {9, 0},
       "8.9.7",
       "9.0",
       with_lengths(base(), 100, 200)},
      {"sequence.decode.right_bound",
       {9, 0},
       "9.9",
       "9.10.2",
       with_lengths(with_mask(base(), Mask::kCausalBottomRight), 1, 1024)},
      {"sequence.multiple_of_128.capture",
       {9, 0},
       "9.15.0",
       "9.15.1",
       edited(kBwd,
              [](P p) {
                p.skv = 1000;
                p.capture = true;
              })},
      {"window.first",
       {9, 0},
       "9.1",
       "9.2",
       edited(kFwd,
              [](P p) {
                p.mask = Mask::kCausal;
                p.window_left = 64;
              })},
      {"window.before_9_6",
       {8, 0},
       "9.5",
       "9.6",
       edited(kFwd,
              [](P p) {
                p.mask = Mask::kPaddingCausal;
                p.window_left = 64;
              })},
      {"window.right",
       {9, 0},
       "9.5",
       "9.6",
       edited(kFwd, [](P p) { p.window_right = 64; })},
      {"window.features",
       {9, 0},
       "9.9",
       "9.10.2",
       edited(kFwd,
              [](P p) {
                p.window_left = 64;
                p.window_right = 64;
              })},
      {"window.bottom_right.hopper",
       {9, 0},
       "9.9",
       "9.10.2",
       edited(kFwd,
              [](P p) {
                p.mask = Mask::kCausalBottomRight;
                p.window_left = 64;
              })},
      {"window.bottom_right.blackwell",
       {10, 0},
       "9.7.0",
       "9.7.1",
       edited(kFwd,
              [](P p) {
                p.mask = Mask::kCausalBottomRight;
                p.skv = 2048;
                p.window_left = 64;
              })},
      {"window.9_14_0",
       {9, 0},
       "9.14.0",
       "9.15.0",
       edited(kFwd,
              [](P p) {
                p.skv = 2048;
                p.window_left = 64;
              })},
      {"heads.grouped",
       {9, 0},
       "8.9.6",
       "8.9.7",
       edited(kFwd, [](P p) { p.kv_heads = 2; })},
      {"layout.thd.hopper",
       {9, 0},
       "9.0",
       "9.1",
       edited(kFwd,
              [](P p) {
                p.layout = Layout::kThd;
                p.mask = Mask::kPaddingCausal;
              })},
      {"layout.thd.ampere",
       {8, 6},
       "9.18.0",
       "9.18.1",
       edited(kFwd,
              [](P p) {
                p.layout = Layout::kThd;
                p.mask = Mask::kPaddingCausal;
              })},
      {"layout.thd.grouped",
       {9, 0},
       "9.5",
       "9.6",
       edited(kFwd,
              [](P p) {
                p.layout = Layout::kThd;
                p.mask = Mask::kPadding;
                p.kv_heads = 4;
              })},
      {"layout.thd.large",
       {9, 0},
       "9.4",
       "9.5",
       edited(kFwd,
              [](P p) {
                p.layout = Layout::kThd;
                p.mask = Mask::kPadding;
                p.batch = 1 << 20;
              })},
      {"bias.post_scale",
       {9, 0},
       "8.9.5",
       "8.9.6",
       edited(kFwd, [](P p) { p.bias = Bias::kPostScale; })},
      {"bias.post_scale.ampere",
       {8, 6},
       "8.9.7",
       "9.0",
       edited(kFwd, [](P p) { p.bias = Bias::kPostScale; })},
      {"bias.post_scale.backward",
       {9, 0},
       "9.4",
       "9.5",
       edited(kBwd,
              [](P p) {
                p.sq = p.skv = 1000;
                p.bias = Bias::kPostScale;
              })},
      {"bias.alibi",
       {9, 0},
       "8.9.5",
       "8.9.6",
       edited(kFwd,
              [](P p) {
                p.mask = Mask::kCausal;
                p.bias = Bias::kAlibi;
              })},
      {"deterministic.blackwell",
       {10, 0},
       "9.18.0",
       "9.18.1",
       edited(kBwd, [](P p) { p.deterministic = true; })},
  };
}

TEST(PublishedCases, RefuseJustBelowAThresholdAndNotAtIt) {
  for (const auto& [rule, arch, below, at, problem] : thresholds()) {
    SCOPED_TRACE(std::string(rule) + ": " + to_string(problem));
    EXPECT_THAT(refusals(problem, arch, below), Contains(rule));
    EXPECT_THAT(refusals(problem, arch, at), IsEmpty());
    EXPECT_THAT(finding(problem, arch, below, rule).remedy, HasSubstr("upgrade cuDNN"));
  }
}

}  // namespace
}  // namespace kiln::attention
