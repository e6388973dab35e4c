// A pointer that the arguments say is not used is refused by its name: whoever set it
// meant it to be used.

#include <array>
#include <initializer_list>

#include "ops/attention.h"
#include "ops/plans.h"
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
    args.kind = GluKind::kSwiglu;
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

TEST(LeftOut, IsAWeightOfANormWithoutOne) {
  RmsNormForward forward = of_rows<RmsNormForward>();
  forward.has_weight = false;
  expect_refused<RmsNormForward>(
      forward, {{"weight is set, and has_weight is false",
                 [](RmsNormForward& args) { args.weight = kAnywhere; }}});
  RmsNormBackward backward = of_rows<RmsNormBackward>();
  backward.has_weight = false;
  expect_refused<RmsNormBackward>(
      backward, {{"weight is set, and has_weight is false",
                  [](RmsNormBackward& args) { args.weight = kAnywhere; }},
                 {"dweight is set, and has_weight is false",
                  [](RmsNormBackward& args) { args.dweight = kAnywhere; }}});
}

TEST(LeftOut, IsTheInputOfANormOrItsOutput) {
  LayerNormBackward args = of_rows<LayerNormBackward>();
  args.has_dweight = false;
  args.weight = kAnywhere;
  expect_refused<LayerNormBackward>(
      args, {{"y is set, and from_output is false",
              [](LayerNormBackward& norm) { norm.y = kAnywhere; }},
             {"bias is set, and from_output is false",
              [](LayerNormBackward& norm) { norm.bias = kAnywhere; }}});
  args.from_output = true;
  args.has_bias = false;
  expect_refused<LayerNormBackward>(
      args, {{"x is set, and from_output is true",
              [](LayerNormBackward& norm) { norm.x = kAnywhere; }},
             {"mean is set, and from_output is true",
              [](LayerNormBackward& norm) {
                norm.mean = static_cast<const float*>(kAnywhere);
              }},
             {"bias is set, and has_bias is false",
              [](LayerNormBackward& norm) { norm.bias = kAnywhere; }}});
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

template <typename Type>
void anywhere(Type*& pointer) {
  pointer = static_cast<Type*>(kAnywhere);
}

TEST(LeftOut, IsWhatAnAttentionProblemOrItsOptionsGiveNoUse) {
  const char* const not_packed = "is set, and problem.layout is not kThd";
  const char* const not_padded = "is set, and problem.mask has no padding";
  const char* const no_dropout = "is set, and problem.dropout is 0";
  struct Case {
    const char* label;
    const char* why;
    void (*set)(AttentionTensors&);
  };
  const std::initializer_list<Case> all{
      {"bias ", "is set, and problem.bias_kind is not kPostScale",
       [](AttentionTensors& given) { anywhere(given.bias); }},
      {"cu_seqlens_q ", not_packed,
       [](AttentionTensors& given) { anywhere(given.cu_seqlens_q); }},
      {"cu_seqlens_kv ", not_packed,
       [](AttentionTensors& given) { anywhere(given.cu_seqlens_kv); }},
      {"lengths_q ", not_padded,
       [](AttentionTensors& given) { anywhere(given.lengths_q); }},
      {"lengths_kv ", not_padded,
       [](AttentionTensors& given) { anywhere(given.lengths_kv); }},
      {"dropout_seed ", no_dropout,
       [](AttentionTensors& given) { anywhere(given.dropout_seed); }},
      {"dropout_offset ", no_dropout,
       [](AttentionTensors& given) { anywhere(given.dropout_offset); }}};
  const attention::Problem forward = test::attention_problem();
  const attention::Problem backward = test::backward_of(forward);
  const AttentionTensors of_forward{
      .q = kAnywhere, .k = kAnywhere, .v = kAnywhere, .o = kAnywhere};
  AttentionTensors of_backward = of_forward;
  anywhere(of_backward.stats);
  of_backward.grad_o = of_backward.grad_q = of_backward.grad_k = of_backward.grad_v =
      kAnywhere;
  of_backward.workspace = kAnywhere;
  of_backward.workspace_bytes = attention_workspace_bytes(backward);
  for (const auto& [label, why, set] : all) {
    for (const auto* const problem : {&forward, &backward}) {
      AttentionTensors tensors = problem == &forward ? of_forward : of_backward;
      set(tensors);
      EXPECT_THAT(refused(AttentionCall{*problem, tensors}),
                  HasSubstr(std::string(": ") + label + why));
    }
  }
  AttentionTensors tensors = of_forward;
  anywhere(tensors.stats);
  EXPECT_THAT(refused(AttentionCall{forward, tensors}),
              HasSubstr(": stats is set, and options.stats is false"));
  tensors = of_backward;
  tensors.grad_bias = kAnywhere;
  EXPECT_THAT(refused(AttentionCall{backward, tensors}),
              HasSubstr(": grad_bias is set, and options.bias_gradient is false"));
}

TEST(LeftOut, AreNoGradientsInAForwardPassOfAttention) {
  const attention::Problem problem = test::attention_problem([](auto& small) {
    small.batch = small.heads = small.kv_heads = 1;
    small.sq = small.skv = 8;
  });
  const AttentionTensors tensors{.q = kAnywhere,
                                 .k = kAnywhere,
                                 .v = kAnywhere,
                                 .o = memory.data() + memory.size() / 2,
                                 .grad_o = kAnywhere,
                                 .grad_q = kAnywhere,
                                 .grad_k = kAnywhere,
                                 .grad_v = kAnywhere,
                                 .grad_bias = kAnywhere};
  EXPECT_TRUE(check_pointers(AttentionCall{problem, tensors}));
}

}  // namespace
}  // namespace kiln::ops::left_out_checks
