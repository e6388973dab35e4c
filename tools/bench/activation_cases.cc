#include <fmt/format.h>

#include "kiln/ops/activation.h"
#include "tools/bench/families.h"

namespace kiln::tools {
namespace {

constexpr std::int64_t kRows = 8192;
constexpr std::int64_t kCols = 32768;

struct ActivationForm {
  ops::ActivationKind kind;
  bool has_bias;
  const char* name;
};

void add_activation(std::vector<BenchCase>& cases, ops::DType dtype,
                    const Device& device, const ActivationForm& form) {
  const std::uint64_t tensor = bytes_of(dtype, kRows * kCols);
  const std::uint64_t bias = form.has_bias ? bytes_of(dtype, kCols) : 0;
  const std::string what = fmt::format("{}, {} x {}", form.name, kRows, kCols);
  cases.push_back({.operation = "activation_forward",
                   .what = what,
                   .dtype = dtype,
                   .work = BytesMoved{.least = 2 * tensor + bias, .goal = kForwardGoal},
                   .tensors = tensors_of_bytes({tensor, tensor, bias}),
                   .start = [=](Service& service, const Device& on, CUstream_st* stream,
                                BenchAddresses at) {
                     return ops::activation_forward(service, on, stream,
                                                    {.dtype = dtype,
                                                     .kind = form.kind,
                                                     .y = at[0],
                                                     .x = at[1],
                                                     .has_bias = form.has_bias,
                                                     .bias = at[2],
                                                     .rows = kRows,
                                                     .cols = kCols});
                   }});
  ops::ActivationBackward args{.dtype = dtype,
                               .kind = form.kind,
                               .has_bias = form.has_bias,
                               .rows = kRows,
                               .cols = kCols};
  args.workspace_bytes =
      ops::activation_backward_workspace_bytes(device, args).value_or(0);
  cases.push_back(
      {.operation = "activation_backward",
       .what = what,
       .dtype = dtype,
       .work = BytesMoved{.least = 3 * tensor + 2 * bias, .goal = kBackwardGoal},
       .tensors =
           tensors_of_bytes({tensor, tensor, tensor, bias, bias, args.workspace_bytes}),
       .start = [=](Service& service, const Device& on, CUstream_st* stream,
                    BenchAddresses at) {
         ops::ActivationBackward now = args;
         now.dx = at[0];
         now.dy = at[1];
         now.x = at[2];
         now.bias = at[3];
         now.dbias = at[4];
         now.workspace = at[5];
         return ops::activation_backward(service, on, stream, now);
       }});
}

struct GluForm {
  ops::GluKind kind;
  const char* name;
  bool has_bias = false;
  bool has_weight = false;
};

/// The arguments of both directions; `alpha`, `limit` and `offset` as in gpt-oss.
template <typename Args>
Args glu_arguments(ops::DType dtype, const GluForm& form) {
  Args args{.dtype = dtype, .kind = form.kind};
  args.has_bias = form.has_bias;
  args.has_weight = form.has_weight;
  args.rows = kRows;
  args.cols = kCols;
  if (form.kind == ops::GluKind::kClampedSwiglu) {
    args.alpha = 1.702F;
    args.limit = 7;
    args.offset = 1;
  }
  return args;
}

void add_glu(std::vector<BenchCase>& cases, ops::DType dtype, const Device& device,
             const GluForm& form) {
  const std::uint64_t tensor = bytes_of(dtype, kRows * kCols);
  const std::uint64_t bias = form.has_bias ? bytes_of(dtype, 2 * kCols) : 0;
  const std::uint64_t weight = form.has_weight ? kRows * sizeof(float) : 0;
  const std::string what =
      fmt::format("{}, packed, {} x 2 x {}", form.name, kRows, kCols);
  const auto forward = glu_arguments<ops::GluForward>(dtype, form);
  cases.push_back(
      {.operation = "glu_forward",
       .what = what,
       .dtype = dtype,
       .work = BytesMoved{.least = 3 * tensor + bias + weight, .goal = kForwardGoal},
       .tensors = tensors_of_bytes({tensor, 2 * tensor, bias, weight}),
       .start = [=](Service& service, const Device& on, CUstream_st* stream,
                    BenchAddresses at) {
         ops::GluForward now = forward;
         now.y = at[0];
         now.x = at[1];
         now.bias = at[2];
         now.weight = static_cast<const float*>(at[3]);
         return ops::glu_forward(service, on, stream, now);
       }});
  auto backward = glu_arguments<ops::GluBackward>(dtype, form);
  backward.workspace_bytes =
      ops::glu_backward_workspace_bytes(device, backward).value_or(0);
  cases.push_back(
      {.operation = "glu_backward",
       .what = what,
       .dtype = dtype,
       .work = BytesMoved{.least = 5 * tensor + 2 * bias + 2 * weight,
                          .goal = kForwardGoal},
       .tensors = tensors_of_bytes({2 * tensor, tensor, 2 * tensor, bias, bias, weight,
                                    weight, backward.workspace_bytes}),
       .start = [=](Service& service, const Device& on, CUstream_st* stream,
                    BenchAddresses at) {
         ops::GluBackward now = backward;
         now.dx = at[0];
         now.dy = at[1];
         now.x = at[2];
         now.bias = at[3];
         now.dbias = at[4];
         now.weight = static_cast<const float*>(at[5]);
         now.dweight = static_cast<float*>(at[6]);
         now.workspace = at[7];
         return ops::glu_backward(service, on, stream, now);
       }});
}

}  // namespace

void add_activation_cases(std::vector<BenchCase>& cases, ops::DType dtype,
                          const Device& device) {
  using ops::ActivationKind;
  using ops::GluKind;
  const bool has_rare_forms = dtype == kRareFormDType;
  add_activation(cases, dtype, device,
                 {ActivationKind::kGeluTanh, true, "gelu_tanh, bias"});
  add_activation(cases, dtype, device,
                 {ActivationKind::kGeluErf, true, "gelu_erf, bias"});
  if (has_rare_forms)
    add_activation(cases, dtype, device,
                   {ActivationKind::kSquaredRelu, false, "squared_relu"});
  add_glu(cases, dtype, device, {GluKind::kSwiglu, "swiglu"});
  add_glu(cases, dtype, device, {GluKind::kGegluTanh, "geglu_tanh"});
  if (!has_rare_forms)
    return;
  add_glu(cases, dtype, device, {GluKind::kGegluErf, "geglu_erf"});
  add_glu(cases, dtype, device, {GluKind::kReglu, "reglu"});
  add_glu(cases, dtype, device,
          {.kind = GluKind::kSwiglu, .name = "swiglu, bias", .has_bias = true});
  add_glu(cases, dtype, device,
          {.kind = GluKind::kSwiglu, .name = "swiglu, weight", .has_weight = true});
  add_glu(cases, dtype, device,
          {.kind = GluKind::kClampedSwiglu,
           .name = "clamped_swiglu, bias",
           .has_bias = true});
}

}  // namespace kiln::tools
