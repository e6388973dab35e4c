// What the activation operations refuse, and what they choose.

#include <array>
#include <limits>

#include "ops/plans.h"
#include "tests/unit/ops/refusals.h"

namespace kiln::ops::activation_checks {
namespace {

using testing::HasSubstr;

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

TEST(ActivationPlan, RefusesADtypeOrKindThatWasNotSet) {
  EXPECT_THAT(refusal(plan(ActivationForward{}, kDevice)),
              HasSubstr("activation_forward: dtype"));
  EXPECT_THAT(refusal(plan(GluBackward{}, kDevice)), HasSubstr("glu_backward: dtype"));
  EXPECT_THAT(refusal(plan(ActivationBackward{.dtype = DType::kF16}, kDevice)),
              HasSubstr("activation_backward: kind is not set"));
  EXPECT_THAT(refusal(plan(GluForward{.dtype = DType::kF16}, kDevice)),
              HasSubstr("glu_forward: kind is not set"));
}

TEST(ActivationPlan, RefusesSizesThatAreNegativeOrOverflow) {
  ActivationForward args = forward();
  args.rows = -1;
  EXPECT_EQ(refusal(plan(args, kDevice)), "activation_forward: rows is -1");
  GluForward gated = glu_forward();
  gated.rows = std::int64_t{1} << 40;
  gated.cols = std::int64_t{1} << 19;  // both halves are 2^60
  EXPECT_THAT(refusal(plan(gated, kDevice)), HasSubstr("2^60 elements or more"));
}

TEST(GluPlan, RefusesABiasWithAWeightAndALayoutThatIsNone) {
  GluForward args = glu_forward();
  args.has_bias = true;
  args.has_weight = true;
  EXPECT_EQ(refusal(plan(args, kDevice)),
            "glu_forward: has_bias and has_weight: one of them, not both");
  args = glu_forward();
  args.layout = static_cast<GluLayout>(7);
  EXPECT_THAT(refusal(plan(args, kDevice)), HasSubstr("layout is none of GluLayout"));
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

TEST(ActivationPlan, RefusesAWorkspaceThatIsTooSmall) {
  ActivationBackward args = backward();
  std::array<float, 64> memory{};
  args.workspace = memory.data();
  args.workspace_bytes = 40 * sizeof(float) - 1;
  EXPECT_EQ(refusal(plan(args, kDevice)),
            "activation_backward: workspace_bytes is 159: 160 are needed");
  args.workspace_bytes += 1;
  EXPECT_TRUE(plan(args, kDevice));
}

TEST(ActivationPointers, AreRefusedWhereTheyAreNullOrOverlap) {
  std::array<std::uint16_t, 800> memory{};
  ActivationForward args = forward();
  EXPECT_EQ(refusal(check_pointers(args)), "activation_forward: y is null");
  args.y = memory.data();
  args.x = memory.data() + 119;
  EXPECT_THAT(refusal(check_pointers(args)), HasSubstr("y overlaps x"));
  args.x = memory.data() + 120;
  EXPECT_TRUE(check_pointers(args));
  args.has_bias = true;
  EXPECT_EQ(refusal(check_pointers(args)), "activation_forward: bias is null");
  ActivationBackward gradient = backward();
  gradient.dx = memory.data();
  gradient.dbias = memory.data() + 120;
  gradient.dy = memory.data() + 160;
  gradient.x = memory.data() + 280;
  gradient.bias = memory.data() + 400;
  EXPECT_EQ(refusal(check_pointers(gradient)),
            "activation_backward: workspace is null");
  gradient.workspace = memory.data() + 438;
  gradient.workspace_bytes = 160;
  EXPECT_THAT(refusal(check_pointers(gradient)), HasSubstr("workspace overlaps bias"));
  gradient.workspace = memory.data() + 440;
  EXPECT_TRUE(check_pointers(gradient));
}

TEST(GluPointers, OfAPackedInputAreItsTwoHalves) {
  std::array<std::uint16_t, 800> memory{};
  GluForward args = glu_forward();
  args.y = memory.data() + 239;
  args.x = memory.data();
  EXPECT_THAT(refusal(check_pointers(args)), HasSubstr("y overlaps x"));
  args.layout = GluLayout::kSplit;
  EXPECT_EQ(refusal(check_pointers(args)), "glu_forward: linear is null");
  args.linear = memory.data() + 119;
  EXPECT_TRUE(check_pointers(args));
}

TEST(GluPointers, OfAWeightAreThoseOfFloats) {
  std::array<float, 600> memory{};
  GluBackward args = glu_backward();
  args.dx = memory.data();
  args.dy = memory.data() + 120;
  args.x = memory.data() + 180;
  args.has_weight = true;
  args.weight = memory.data() + 300;
  args.dweight = memory.data() + 301;
  EXPECT_THAT(refusal(check_pointers(args)), HasSubstr("dweight overlaps weight"));
  args.dweight = memory.data() + 119;
  EXPECT_THAT(refusal(check_pointers(args)), HasSubstr("dweight overlaps"));
  args.dweight = memory.data() + 303;
  EXPECT_TRUE(check_pointers(args));
}

}  // namespace
}  // namespace kiln::ops::activation_checks
