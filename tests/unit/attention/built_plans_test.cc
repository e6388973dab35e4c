// The rules against the plans that cuDNN 9.19.0 really built, and did not build, for
// device properties of each architecture: whatever the rules allow was built, and what
// was built is refused only as a known bug.

#include <gmock/gmock.h>

#include "tests/unit/attention/problems.h"

namespace kiln::attention {
namespace {

constexpr const char* kVersion = "9.19.0";

void expect_agreement(const Problem& problem, ComputeCapability arch, bool was_built) {
  SCOPED_TRACE(to_string(problem) + " on " + to_string(arch));
  const Verdict verdict = evaluate(problem, arch, version(kVersion));
  if (!was_built) {
    EXPECT_FALSE(verdict.supported);
    return;
  }
  for (const Finding& each : verdict.refusals)
    EXPECT_EQ(each.kind, RuleKind::kKnownBug) << each.id;
}

constexpr std::array kArchitectures{ComputeCapability{8, 0},  ComputeCapability{8, 6},
                                    ComputeCapability{8, 9},  ComputeCapability{9, 0},
                                    ComputeCapability{10, 0}, ComputeCapability{10, 3},
                                    ComputeCapability{12, 0}};

struct Dims {
  std::int64_t qk, v;
};

TEST(BuiltPlans, ForwardHeadDimensions) {
  for (const ComputeCapability arch : kArchitectures) {
    for (const Dims d :
         {Dims{64, 64}, {128, 128}, {192, 128}, {192, 192}, {256, 256}, {576, 512}})
      expect_agreement(with_dims(base(), d.qk, d.v), arch, true);
    expect_agreement(with_dims(base(), 100, 100), arch, false);
  }
}

TEST(BuiltPlans, BackwardHeadDimensions) {
  for (const ComputeCapability arch : kArchitectures) {
    const bool is_hopper = arch.major == 9;
    const bool is_blackwell = arch.major == 10;
    for (const auto& [d, was_built] : {std::pair{Dims{64, 64}, true},
                                       {{128, 128}, true},
                                       {{192, 128}, is_hopper || is_blackwell},
                                       {{192, 192}, is_hopper},
                                       {{256, 256}, is_hopper},
                                       {{100, 100}, false},
                                       {{288, 288}, false}})
      expect_agreement(with_dims(base(Pass::kBackward), d.qk, d.v), arch, was_built);
  }
  for (const Dims d : {Dims{160, 128}, {256, 128}, {192, 160}})
    expect_agreement(with_dims(base(Pass::kBackward), d.qk, d.v), {9, 0}, true);
}

TEST(BuiltPlans, NothingBeforeAmpere) {
  for (const ComputeCapability arch : {ComputeCapability{7, 0}, {7, 5}}) {
    expect_agreement(base(), arch, false);
    expect_agreement(base(Pass::kBackward), arch, false);
  }
}

constexpr std::array kTried{ComputeCapability{8, 0}, ComputeCapability{8, 6},
                            ComputeCapability{9, 0}, ComputeCapability{10, 0}};

TEST(BuiltPlans, BottomRightMasks) {
  for (const ComputeCapability arch : kTried) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      const Problem problem = with_mask(base(pass), Mask::kCausalBottomRight);
      for (const auto& [sq, skv] :
           {std::pair{1024, 1024}, {512, 2048}, {1000, 1999}, {100, 100}, {1, 1024}})
        expect_agreement(with_lengths(problem, sq, skv), arch, true);
      expect_agreement(with_lengths(problem, 1024, 512), arch, false);
      Problem other = problem;
      other.bias_kind = Bias::kPostScale;
      expect_agreement(other, arch, false);
      other = problem;
      other.dropout = 0.1;
      expect_agreement(other, arch, false);
    }
  }
}

TEST(BuiltPlans, LengthsAtTheirEdges) {
  for (const ComputeCapability arch :
       {ComputeCapability{8, 0}, {8, 9}, {9, 0}, {10, 0}})
    for (const Pass pass : {Pass::kForward, Pass::kBackward})
      for (const auto& [sq, skv] : {std::pair{1, 1024},
                                    {1024, 1},
                                    {2, 1024},
                                    {1024, 2},
                                    {1, 2},
                                    {2, 2},
                                    {3, 3},
                                    {127, 1025}})
        expect_agreement(with_lengths(base(pass), sq, skv), arch, true);
}

/// What other versions answered, without a device.
TEST(BuiltPlans, OneQueryOrOneKeyByVersion) {
  struct Tried {
    const char* cudnn;
    ComputeCapability arch;
    std::int64_t sq, skv;
    bool was_built;
  };
  for (const auto& [cudnn, arch, sq, skv, was_built] :
       {Tried{"9.8.0", {8, 0}, 1, 1024, false},
        {"9.8.0", {8, 9}, 1, 1024, false},
        {"9.8.0", {8, 0}, 1024, 1, false},
        {"9.8.0", {9, 0}, 1, 1024, true},
        {"9.8.0", {9, 0}, 1024, 1, true},
        {"9.13.0", {8, 0}, 1, 1024, false},
        {"9.13.0", {8, 9}, 1, 1024, false},
        {"9.13.0", {9, 0}, 1, 1024, true},
        {"9.13.0", {10, 0}, 1, 1024, false},
        {"9.13.0", {10, 0}, 1024, 1, true},
        {"9.14.0", {8, 0}, 1, 1024, true},
        {"9.16.0", {8, 0}, 1024, 1, true}}) {
    const Problem problem = with_lengths(base(Pass::kBackward), sq, skv);
    EXPECT_EQ(evaluate(problem, arch, version(cudnn)).supported, was_built)
        << cudnn << " " << to_string(arch) << " " << to_string(problem);
  }
}

/// Of one feature each.
std::vector<Problem> with_features(const Problem& plain) {
  std::vector<Problem> problems;
  const auto add = [&](auto edit) {
    problems.push_back(plain);
    edit(problems.back());
    set_strides(problems.back());
  };
  add([](Problem& p) { p.mask = Mask::kCausal, p.window_left = 128; });
  add([](Problem& p) { p.mask = Mask::kCausalBottomRight, p.window_left = 128; });
  add([](Problem& p) { p.mask = Mask::kPadding; });
  add([](Problem& p) { p.mask = Mask::kPaddingCausal; });
  add([](Problem& p) { p.mask = Mask::kPaddingCausalBottomRight; });
  add([](Problem& p) { p.dropout = 0.1; });
  add([](Problem& p) { p.bias_kind = Bias::kPostScale; });
  add([](Problem& p) { p.bias_kind = Bias::kPostScale, p.dropout = 0.1; });
  add([](Problem& p) { p.kv_heads = 4; });
  add([](Problem& p) { p.kv_heads = 1; });
  add([](Problem& p) { p.deterministic = p.pass == Pass::kBackward; });
  add([](Problem& p) { p.layout = Layout::kSbhd; });
  add([](Problem& p) { p.layout = Layout::kBhsd; });
  add([](Problem& p) { p.dtype = DType::kF16; });
  return problems;
}

TEST(BuiltPlans, Features) {
  for (const ComputeCapability arch : kTried) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      for (const Problem& problem : with_features(base(pass)))
        expect_agreement(problem, arch, true);
    }
    Problem problem = base(Pass::kBackward);
    problem.dtype = DType::kF32;
    expect_agreement(problem, arch, false);
    expect_agreement(with_lengths(base(Pass::kBackward), 1, 1), arch, false);
  }
}

}  // namespace
}  // namespace kiln::attention
