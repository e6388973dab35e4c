// A pointer that the arguments say is not used is refused by its name: whoever set it
// meant it to be used.

#include <array>

#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/norm.h"
#include "ops/softmax.h"
#include "tests/support/attention_problem.h"
#include "tests/unit/ops/refusals.h"

namespace kiln::ops::left_out_checks {
namespace {

using testing::HasSubstr;

// Their addresses alone count. NOLINTBEGIN(*-avoid-non-const-global-variables)
alignas(16) std::array<std::byte, 1 << 16> memory;
void* const kAnywhere = memory.data();
// NOLINTEND(*-avoid-non-const-global-variables)

template <typename Args>
Args of_rows() {
  Args args{.dtype = DType::kBf16};
  args.rows = 1;
  args.cols = 8;
  return args;
}

/// What is refused about `args`, of which nothing but the one pointer was set: the
/// first that is looked at is null.
template <typename Args>
std::string refused(const Args& args) {
  return refusal(check_pointers(args));
}

TEST(LeftOut, IsABiasAResidualOrAGradientOfANorm) {
  LayerNormForward forward = of_rows<LayerNormForward>();
  forward.y = kAnywhere;
  forward.sum = kAnywhere;
  EXPECT_EQ(refused(forward),
            "layernorm_forward: sum is set, and adds_residual is false: it would be "
            "ignored");
  forward = of_rows<LayerNormForward>();
  forward.has_bias = false;
  forward.rows = 0;  // whatever the sizes
  forward.bias = kAnywhere;
  forward.weight = memory.data() + 1024;
  EXPECT_EQ(refused(forward),
            "layernorm_forward: bias is set, and has_bias is false: it would be "
            "ignored");
  RmsNormBackward backward = of_rows<RmsNormBackward>();
  backward.has_dweight = false;
  backward.dx = kAnywhere;
  backward.dweight = kAnywhere;
  EXPECT_THAT(refused(backward), HasSubstr("dweight is set, and has_dweight is false"));
}

TEST(LeftOut, IsABiasAWeightOrALinearHalfOfAnActivation) {
  ActivationForward activation = of_rows<ActivationForward>();
  activation.rows = 0;
  activation.bias = kAnywhere;
  EXPECT_THAT(refused(activation), HasSubstr("bias is set, and has_bias is false"));
  GluForward glu = of_rows<GluForward>();
  glu.rows = 0;
  glu.weight = static_cast<const float*>(kAnywhere);
  EXPECT_THAT(refused(glu), HasSubstr("weight is set, and has_weight is false"));
  glu.weight = nullptr;
  glu.linear = kAnywhere;
  EXPECT_THAT(refused(glu), HasSubstr("linear is set, and layout is kPacked"));
}

TEST(LeftOut, AreTheBytesOfAnotherMask) {
  SoftmaxForward args{.dtype = DType::kBf16, .sq = 0, .skv = 8};
  args.mask = SoftmaxMask::kCausal;
  args.mask_bytes = static_cast<const std::uint8_t*>(kAnywhere);
  EXPECT_THAT(refused(args), HasSubstr("mask_bytes is set, and mask is not kBytes"));
}

TEST(LeftOut, IsABiasThatAnAttentionProblemHasNot) {
  const attention::Problem problem = test::attention_problem();
  void* const apart = memory.data();  // no element of these is touched
  const AttentionTensors tensors{
      .q = apart, .k = apart, .v = apart, .o = memory.data() + 8, .bias = kAnywhere};
  const std::string why = refused(AttentionCall{problem, tensors});
  EXPECT_THAT(why, HasSubstr("bias is set, and problem.bias is not kPostScale"));
}

}  // namespace
}  // namespace kiln::ops::left_out_checks
