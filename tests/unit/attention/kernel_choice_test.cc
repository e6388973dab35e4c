// Which of Kiln's own kernels runs a problem, and why.

#include "attention/kernel_choice.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "attention/evaluate.h"
#include "tests/support/attention_problem.h"
#include "tests/support/test.h"

namespace kiln::attention {
namespace {

using test::attention_problem;

KernelChoice choice(const std::function<void(Problem&)>& change = {},
                    ComputeCapability capability = {9, 0},
                    const CallProperties& call = {}) {
  const auto chosen = choose_kernel(attention_problem(change), capability, call);
  EXPECT_TRUE(chosen) << chosen.error().message;
  return chosen.value_or(KernelChoice{});
}

std::string refusal(const std::function<void(Problem&)>& change,
                    ComputeCapability capability = {9, 0}) {
  const auto chosen = choose_kernel(attention_problem(change), capability);
  EXPECT_FALSE(chosen);
  EXPECT_EQ(chosen.error().code, ErrorCode::kUnavailable);
  return chosen.error().message;
}

TEST(KernelChoice, OfSixteenBitsIsOnTensorCores) {
  EXPECT_EQ(choice().kernel, "attention_fwd");
  EXPECT_EQ(choice().reason, "tensor cores");
  EXPECT_EQ(choice([](Problem& p) { p.dtype = DType::kF16; }, {7, 5}).kernel,
            "attention_fwd");
  EXPECT_EQ(choice([](Problem& p) { p.pass = Pass::kBackward; }).kernel,
            "attention_bwd");
}

TEST(KernelChoice, SaysWhyItIsTheOneThatComputesInFloat) {
  const auto why = [](const std::function<void(Problem&)>& change,
                      ComputeCapability capability = {9, 0},
                      const CallProperties& call = {}) {
    const KernelChoice chosen = choice(change, capability, call);
    EXPECT_EQ(chosen.kernel, "attention_plain_fwd");
    return chosen.reason;
  };
  EXPECT_EQ(why([](Problem& p) { p.dtype = DType::kF32; }), "f32 is computed in float");
  EXPECT_EQ(why({}, {7, 5}), "compute capability 7.5 has no tensor cores for bf16");
  EXPECT_THAT(why([](Problem& p) { p.dtype = DType::kF16; }, {7, 0}), HasSubstr("7.0"));
  EXPECT_EQ(why([](Problem& p) { p.dqk = 100; }),
            "a head dimension (100, 64) is no multiple of 8");
  EXPECT_EQ(why({}, {9, 0}, {.is_aligned = false}),
            "a tensor does not begin at a multiple of 16 bytes");
  EXPECT_EQ(why({}, {9, 0}, {.has_positive_scale = false}), "the scale is not above 0");
  Problem apart = attention_problem();
  apart.k.sequence += 4;
  const auto chosen = choose_kernel(apart, {9, 0});
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->reason, "a stride, 260, is no multiple of 8");
}

TEST(KernelChoice, DoesNotMindTheStrideOfAnAxisWithOnePlace) {
  Problem problem = attention_problem([](Problem& p) { p.batch = 1; });
  problem.q.batch = 1;
  const auto chosen = choose_kernel(problem, {9, 0});
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->reason, "tensor cores");
}

TEST(KernelChoice, WithDropoutIsOneQuestionWhateverAPassAsksForItself) {
  Problem forward = attention_problem([](Problem& p) {
    p.dropout = 0.1;
    p.training = true;
  });
  Problem backward = forward;
  backward.pass = Pass::kBackward;
  backward.deterministic = backward.capture = true;
  EXPECT_EQ(run_together(forward), run_together(backward));
  for (const Problem& each : run_together(forward))
    EXPECT_TRUE(each.deterministic && each.capture) << to_string(each);
  backward.dropout = 0;
  EXPECT_EQ(run_together(backward), std::vector{backward});
}

TEST(KernelChoice, RefusesWhatNoKernelIsFor) {
  EXPECT_EQ(refusal([](Problem& p) { p.dqk = 257; }),
            "Kiln's kernels are for head dimensions up to 256");
  EXPECT_THAT(refusal({}, {6, 1}), HasSubstr("compute capability 7.0 and later; this "
                                             "is 6.1"));
  EXPECT_THAT(refusal([](Problem& p) { p.batch = std::int64_t{1} << 27; }),
              HasSubstr("2^31 - 1 blocks"));
  EXPECT_THAT(refusal([](Problem& p) { p.sq = std::int64_t{1} << 30; }),
              HasSubstr("sequences up to"));
  Problem apart = attention_problem();
  apart.v.dim = 2;
  const auto chosen = choose_kernel(apart, {9, 0});
  ASSERT_FALSE(chosen);
  EXPECT_THAT(chosen.error().message, HasSubstr("last dimension contiguous"));
}

TEST(KernelChoice, TakesTheSmallestHeadDimensionsThatHoldTheProblem) {
  const auto dims = [](std::int64_t dqk, std::int64_t dv) {
    const KernelChoice chosen = choice([&](Problem& p) {
      p.dqk = dqk;
      p.dv = dv;
    });
    return chosen.parameters.at("dqk") + "/" + chosen.parameters.at("dv");
  };
  EXPECT_EQ(dims(8, 8), "32/32");
  EXPECT_EQ(dims(64, 64), "64/64");
  EXPECT_EQ(dims(72, 64), "96/64");
  EXPECT_EQ(dims(192, 128), "192/128");
  EXPECT_EQ(dims(200, 256), "256/256");
  EXPECT_EQ(dims(64, 128), "128/128") << "values are never the wider ones in a tile";
}

/// Rows that are added up at a time, of a problem with what `of` has beside the sizes.
std::string step(Problem of, ComputeCapability capability, std::int64_t batch,
                 std::int64_t sq) {
  const auto with = [&](Problem& p) {
    p.dtype = DType::kF16;
    p.pass = of.pass;
    p.bias_kind = of.bias_kind;
    p.dropout = of.dropout;
    p.dqk = of.dqk;
    p.dv = of.dv;
    p.batch = batch;
    p.sq = sq;
  };
  return choice(with, capability).parameters.at("step");
}

TEST(KernelChoice, AddsUpInOneOrderWhateverTheLengthsAndTheBatch) {
  std::vector<Problem> problems;
  for (const auto& dims :
       {std::pair{32, 32}, {64, 64}, {96, 64}, {128, 128}, {192, 128}, {256, 256}}) {
    for (const bool is_backward : {false, true}) {
      for (const bool has_more : {false, true}) {
        Problem& problem = problems.emplace_back();
        problem.dqk = dims.first;
        problem.dv = dims.second;
        problem.pass = is_backward ? Pass::kBackward : Pass::kForward;
        problem.bias_kind = has_more ? Bias::kAlibi : Bias::kNone;
      }
    }
    problems.emplace_back(problems.back()).dropout = 0.5;
  }
  for (const ComputeCapability capability :
       {ComputeCapability{7, 5}, {8, 0}, {8, 6}, {9, 0}, {12, 0}}) {
    for (const Problem& problem : problems) {
      for (const std::int64_t sq : {1, 64, 65, 130, 5000})
        EXPECT_EQ(step(problem, capability, 1, sq), step(problem, capability, 3, 64))
            << to_string(capability) << " " << problem.dqk << "/" << problem.dv << " "
            << static_cast<int>(problem.pass) << ", " << sq << " queries";
    }
  }
}

TEST(KernelChoice, KnowsBiasAndDropout) {
  const KernelChoice chosen = choice([](Problem& p) {
    p.bias_kind = Bias::kAlibi;
    p.dropout = 0.1;
  });
  EXPECT_EQ(chosen.parameters.at("bias"), "alibi");
  EXPECT_EQ(chosen.parameters.at("dropout"), "true");
  const auto of_bias = choose_bias_kernel(attention_problem(), {9, 0});
  ASSERT_TRUE(of_bias);
  EXPECT_EQ(of_bias->kernel, "attention_bias_bwd");
}

}  // namespace
}  // namespace kiln::attention
