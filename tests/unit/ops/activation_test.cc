// What the activation operations refuse, and what they choose.

#include <limits>

#include "ops/plans.h"
#include "tests/unit/ops/refusals.h"

namespace kiln::ops::activation_checks {
namespace {

const Device kDevice{.name = "planned", .capability = {9, 0}, .multiprocessors = 132};

ActivationForward forward() {
  return {
      .dtype = DType::kBf16, .kind = ActivationKind::kGeluTanh, .rows = 3, .cols = 40};
}
ActivationBackward backward() {
  return {.dtype = DType::kBf16,
          .kind = ActivationKind::kGeluErf,
          .has_bias = true,
          .rows = 3,
          .cols = 40};
}
GluForward glu_forward() {
  return {.dtype = DType::kBf16, .kind = GluKind::kSwiglu, .rows = 3, .cols = 40};
}
GluBackward glu_backward() {
  return {.dtype = DType::kBf16, .kind = GluKind::kSwiglu, .rows = 3, .cols = 40};
}

TEST(GluPlan, RefusesSizesOfWhichBothHalvesOverflow) {
  GluForward gated = glu_forward();
  gated.rows = std::int64_t{1} << 40;
  gated.cols = std::int64_t{1} << 19;  // both halves are 2^60
  EXPECT_THAT(refusal(plan(gated, kDevice)), HasSubstr("2^60 elements or more"));
}

TEST(GluPlan, RefusesABiasWithAWeight) {
  GluForward args = glu_forward();
  args.has_bias = true;
  args.has_weight = true;
  EXPECT_EQ(refusal(plan(args, kDevice)),
            "glu_forward: has_bias and has_weight: one of them, not both");
}

TEST(GluPlan, RefusesLimitsThatCutOffEverything) {
  GluForward args = glu_forward();
  args.kind = GluKind::kClampedSwiglu;
  args.alpha = 1;
  args.offset = 0;
  for (const float wrong : {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    args.limit = wrong;
    EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr("limit is")) << wrong;
  }
  args.limit = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(plan(args, kDevice));
  args.alpha = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr("alpha is inf"));
}

// Both forms that were published have an alpha and an offset of their own.
TEST(GluPlan, RefusesAClampedFormWithoutItsNumbers) {
  GluForward args = glu_forward();
  args.kind = GluKind::kClampedSwiglu;
  args.limit = 7;
  EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr("alpha is nan and offset nan"));
  args.alpha = 1.702F;
  EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr("offset nan"));
  args.offset = 1;
  EXPECT_TRUE(plan(args, kDevice));
}

TEST(ActivationPlan, NamesTheKernelByKindAndPass) {
  EXPECT_EQ(plan(forward(), kDevice).value().at(0).kernel, "bias_gelu_tanh_fwd");
  EXPECT_EQ(plan(backward(), kDevice).value().at(0).kernel, "bias_gelu_erf_bwd");
  for (const auto& [kind, kernel] : {std::pair{GluKind::kSwiglu, "swiglu_bwd"},
                                     {GluKind::kGegluTanh, "geglu_tanh_bwd"},
                                     {GluKind::kGegluErf, "geglu_erf_bwd"},
                                     {GluKind::kReglu, "reglu_bwd"},
                                     {GluKind::kClampedSwiglu, "clamped_swiglu_bwd"}}) {
    GluBackward args = glu_backward();
    args.kind = kind;
    args.limit = 7;
    args.alpha = 1;
    args.offset = 0;
    EXPECT_EQ(plan(args, kDevice).value().at(0).kernel, kernel);
  }
}

TEST(ActivationPlan, FinalizesTheGradientOfABias) {
  ActivationBackward args = backward();
  const Launches with_bias = plan(args, kDevice).value();
  ASSERT_EQ(with_bias.size(), 2U);
  EXPECT_EQ(with_bias[1].entry, "bias_gelu_erf_bwd_finalize");
  args.rows = 0;
  EXPECT_EQ(plan(args, kDevice).value().size(), 1U);
  args.has_bias = false;
  EXPECT_TRUE(plan(args, kDevice).value().empty());
}

// 32768 columns are 32 tiles of 1024: 28 parts make 896 of the 924 blocks that 132
// multiprocessors hold.
TEST(ActivationPlan, MakesAsManyPartsAsRunAtATimeWhereItSums) {
  ActivationBackward args = backward();
  args.rows = 8192;
  args.cols = 32768;
  EXPECT_EQ(plan(args, kDevice).value().at(0).extents.at("blocks"), 32 * 28);
  EXPECT_EQ(activation_backward_workspace_bytes(kDevice, args).value(),
            28U * 32768 * 4);
  args.has_bias = false;
  EXPECT_EQ(activation_backward_workspace_bytes(kDevice, args).value(), 0U);
}

}  // namespace
}  // namespace kiln::ops::activation_checks
