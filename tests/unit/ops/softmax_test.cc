// What the softmax operations refuse, and what they choose.

#include <fmt/format.h>

#include <limits>

#include "ops/plans.h"
#include "tests/unit/ops/refusals.h"

namespace kiln::ops::softmax_checks {
namespace {

const Device kDevice{.name = "planned", .capability = {9, 0}};

SoftmaxForward forward() {
  return {.dtype = DType::kBf16, .batch = 2, .heads = 3, .sq = 5, .skv = 7};
}
SoftmaxBackward backward() {
  return {.dtype = DType::kBf16, .batch = 2, .heads = 3, .sq = 5, .skv = 7};
}

TEST(SoftmaxPlan, RefusesAMaskForAnotherBatch) {
  SoftmaxForward args = forward();
  args.mask = SoftmaxMask::kBytes;
  args.mask_batch = 3;
  EXPECT_EQ(refusal(plan(args, kDevice)),
            "softmax_forward: mask_batch is 3: 1 or batch, 2");
  for (const std::int64_t right : {0, 1, 2}) {
    args.mask_batch = right;
    EXPECT_TRUE(plan(args, kDevice)) << right;
  }
}

TEST(SoftmaxPlan, RefusesAScaleThatIsNotFinite) {
  for (const float scale : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
    SoftmaxForward first = forward();
    first.scale = scale;
    EXPECT_EQ(refusal(plan(first, kDevice)),
              fmt::format("softmax_forward: scale is {}: it must be finite", scale));
    SoftmaxBackward second = backward();
    second.scale = -scale;
    EXPECT_EQ(refusal(plan(second, kDevice)),
              fmt::format("softmax_backward: scale is {}: it must be finite", -scale));
  }
}

TEST(SoftmaxPlan, TakesTheSmallestClassThatHoldsTheRows) {
  SoftmaxForward args = forward();
  for (const auto& [cols, expected] : {std::pair{1, "32"},
                                       {32, "32"},
                                       {33, "64"},
                                       {1000, "1024"},
                                       {4096, "4096"},
                                       {4097, "any"}}) {
    args.skv = cols;
    const Launches launches = plan(args, kDevice).value();
    ASSERT_EQ(launches.size(), 1U);
    EXPECT_EQ(launches[0].kernel, "scaled_softmax_fwd");
    EXPECT_EQ(launches[0].parameters.at("max_cols"), expected) << cols;
  }
}

TEST(SoftmaxPlan, NamesTheKernelByMaskAndPass) {
  SoftmaxForward args = forward();
  args.mask = SoftmaxMask::kCausal;
  EXPECT_EQ(plan(args, kDevice).value().at(0).kernel,
            "scaled_upper_triang_masked_softmax_fwd");
  SoftmaxBackward gradient = backward();
  gradient.mask = SoftmaxMask::kBytes;
  EXPECT_EQ(plan(gradient, kDevice).value().at(0).kernel, "scaled_masked_softmax_bwd");
}

TEST(SoftmaxPlan, ATemplateParameterMakesWhollyMaskedRowsUniform) {
  SoftmaxForward args = forward();
  args.mask = SoftmaxMask::kBytes;
  EXPECT_FALSE(plan(args, kDevice).value().at(0).parameters.contains("masked_row"));
  args.masked_row = SoftmaxMaskedRow::kUniform;
  EXPECT_EQ(plan(args, kDevice).value().at(0).parameters.at("masked_row"), "uniform");
  args.mask = SoftmaxMask::kCausal;
  EXPECT_EQ(refusal(plan(args, kDevice)),
            "softmax_forward: masked_row is kUniform, and mask is not kBytes");
}

}  // namespace
}  // namespace kiln::ops::softmax_checks
