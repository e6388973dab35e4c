// A pointer that the arguments say is not used is refused by its name: whoever set it
// meant it to be used.

#include <array>
#include <initializer_list>

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
  if constexpr (requires { args.layout; })
    args.kind = GluKind::kSwiGlu;
  else if constexpr (requires { args.kind; })
    args.kind = ActivationKind::kGeluErf;
  return args;
}

template <typename Args>
std::string refused(const Args& args) {
  return refusal(check_pointers(args));
}

/// Each pointer of `Args` that only a flag gives a meaning, and what is said of it.
template <typename Args>
struct LeftOut {
  const char* why;
  void (*set)(Args&);
};

/// Of an operation of no rows, whose flags are all off, where nothing else is touched.
template <typename Args>
void expect_refused(Args args, std::initializer_list<LeftOut<Args>> all) {
  args.rows = 0;
  const Args without = args;
  EXPECT_TRUE(check_pointers(without));
  for (const auto& [why, set] : all) {
    args = without;
    set(args);
    EXPECT_THAT(refused(args), HasSubstr(why));
  }
}

TEST(LeftOut, IsABiasAResidualOrAGradientOfANorm) {
  LayerNormForward forward = of_rows<LayerNormForward>();
  forward.has_bias = false;
  forward.weight = kAnywhere;
  expect_refused<LayerNormForward>(
      forward, {{"bias is set, and has_bias is false: it would be ignored",
                 [](LayerNormForward& args) { args.bias = kAnywhere; }},
                {"sum is set, and adds_residual is false",
                 [](LayerNormForward& args) { args.sum = kAnywhere; }},
                {"residual is set, and adds_residual is false",
                 [](LayerNormForward& args) { args.residual = kAnywhere; }}});
  LayerNormBackward backward = of_rows<LayerNormBackward>();
  backward.has_bias = backward.has_dweight = false;
  backward.weight = kAnywhere;
  expect_refused<LayerNormBackward>(
      backward, {{"dweight is set, and has_dweight is false",
                  [](LayerNormBackward& args) { args.dweight = kAnywhere; }},
                 {"dbias is set, and has_dweight is false",
                  [](LayerNormBackward& args) { args.dbias = kAnywhere; }},
                 {"dsum is set, and adds_residual is false",
                  [](LayerNormBackward& args) { args.dsum = kAnywhere; }}});
}

TEST(LeftOut, IsABiasAWeightOrALinearHalfOfAnActivation) {
  const char* const no_bias = "bias is set, and has_bias is false";
  const char* const no_weight = "weight is set, and has_weight is false";
  const char* const no_half = "linear is set, and layout is kPacked";
  expect_refused<ActivationForward>(
      of_rows<ActivationForward>(),
      {{no_bias, [](ActivationForward& args) { args.bias = kAnywhere; }}});
  expect_refused<ActivationBackward>(
      of_rows<ActivationBackward>(),
      {{no_bias, [](ActivationBackward& args) { args.bias = kAnywhere; }},
       {no_bias, [](ActivationBackward& args) { args.dbias = kAnywhere; }}});
  expect_refused<GluForward>(
      of_rows<GluForward>(),
      {{no_bias, [](GluForward& args) { args.bias = kAnywhere; }},
       {no_half, [](GluForward& args) { args.linear = kAnywhere; }},
       {no_weight,
        [](GluForward& args) { args.weight = static_cast<float*>(kAnywhere); }}});
  expect_refused<GluBackward>(
      of_rows<GluBackward>(),
      {{no_bias, [](GluBackward& args) { args.bias = kAnywhere; }},
       {"dbias is set", [](GluBackward& args) { args.dbias = kAnywhere; }},
       {no_half, [](GluBackward& args) { args.linear = kAnywhere; }},
       {"dlinear is set", [](GluBackward& args) { args.dlinear = kAnywhere; }},
       {no_weight,
        [](GluBackward& args) { args.weight = static_cast<float*>(kAnywhere); }},
       {"dweight is set",
        [](GluBackward& args) { args.dweight = static_cast<float*>(kAnywhere); }}});
}

TEST(LeftOut, AreTheBytesOfAnotherMask) {
  SoftmaxForward args{.dtype = DType::kBf16, .sq = 0, .skv = 8};
  args.mask = SoftmaxMask::kCausal;
  args.mask_bytes = static_cast<const std::uint8_t*>(kAnywhere);
  EXPECT_THAT(refused(args), HasSubstr("mask_bytes is set, and mask is not kBytes"));
}

TEST(LeftOut, IsABiasThatAnAttentionProblemHasNot) {
  const attention::Problem problem = test::attention_problem();
  AttentionTensors tensors{.q = kAnywhere,
                           .k = kAnywhere,
                           .v = kAnywhere,
                           .o = kAnywhere,
                           .bias = kAnywhere};
  EXPECT_THAT(refused(AttentionCall{problem, tensors}),
              HasSubstr("bias is set, and problem.bias is not kPostScale"));
  tensors = {.q = kAnywhere,
             .k = kAnywhere,
             .v = kAnywhere,
             .o = kAnywhere,
             .stats = static_cast<float*>(kAnywhere),
             .grad_o = kAnywhere,
             .grad_q = kAnywhere,
             .grad_k = kAnywhere,
             .grad_v = kAnywhere,
             .grad_bias = kAnywhere};
  EXPECT_THAT(refused(AttentionCall{test::backward_of(problem), tensors}),
              HasSubstr("grad_bias is set, and options.bias_gradient is false"));
}

}  // namespace
}  // namespace kiln::ops::left_out_checks
