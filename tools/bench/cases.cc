#include "tools/bench/cases.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "kiln/ops/activation.h"
#include "kiln/ops/cross_entropy.h"
#include "kiln/ops/norm.h"
#include "kiln/ops/rope.h"
#include "kiln/ops/softmax.h"

namespace kiln::tools {
namespace {

using ops::DType;
using Addresses = std::span<void* const>;

constexpr std::array kTypes{DType::kBf16, DType::kF16, DType::kF32};
constexpr double kForwardGoal = 0.90;
constexpr double kBackwardGoal = 0.85;

std::uint64_t bytes_of(DType dtype, std::int64_t elements) {
  return static_cast<std::uint64_t>(elements) * ops::size_bytes(dtype);
}

void add_softmax(std::vector<BenchCase>& cases, DType dtype, ops::SoftmaxMask mask,
                 const char* name) {
  constexpr std::int64_t kHeads = 128;  // 4 sequences of 32
  constexpr std::int64_t kLength = 2048;
  constexpr std::int64_t kMask = kLength * kLength;
  const std::uint64_t whole = bytes_of(dtype, kHeads * kLength * kLength);
  const std::uint64_t seen = mask == ops::SoftmaxMask::kCausal ? whole / 2 : whole;
  const std::string what =
      fmt::format("{}, {} x {} x {}", name, kHeads, kLength, kLength);
  const bool has_mask = mask == ops::SoftmaxMask::kBytes;
  std::vector<BenchTensor> tensors{{.bytes = whole}, {.bytes = whole}};
  if (has_mask)
    tensors.push_back({.bytes = kMask, .fill = BenchTensor::Fill::kZeros});
  cases.push_back({.operation = "softmax_forward",
                   .what = what,
                   .dtype = dtype,
                   .least_bytes = seen + whole + (has_mask ? kMask : 0),
                   .goal = kForwardGoal,
                   .tensors = tensors,
                   .start = [=](Service& service, CUstream_st* stream, Addresses at) {
                     return ops::softmax_forward(
                         service, stream,
                         {.dtype = dtype,
                          .y = at[0],
                          .x = at[1],
                          .heads = kHeads,
                          .sq = kLength,
                          .skv = kLength,
                          .scale = 0.125F,
                          .mask = mask,
                          .mask_bytes = has_mask
                                            ? static_cast<const std::uint8_t*>(at[2])
                                            : nullptr,
                          .mask_batch = 1});
                   }});
  cases.push_back({.operation = "softmax_backward",
                   .what = what,
                   .dtype = dtype,
                   .least_bytes = 2 * seen + whole,
                   .goal = kBackwardGoal,
                   .tensors = {{.bytes = whole}, {.bytes = whole}, {.bytes = whole}},
                   .start = [=](Service& service, CUstream_st* stream, Addresses at) {
                     return ops::softmax_backward(service, stream,
                                                  {.dtype = dtype,
                                                   .dx = at[0],
                                                   .dy = at[1],
                                                   .y = at[2],
                                                   .heads = kHeads,
                                                   .sq = kLength,
                                                   .skv = kLength,
                                                   .scale = 0.125F,
                                                   .mask = mask});
                   }});
}

// 4 sequences of 2048 tokens, 32 heads of queries and 8 of keys.
ops::RopeArguments rope_arguments(DType dtype, Addresses at) {
  constexpr std::int64_t kBatch = 4;
  constexpr std::int64_t kLength = 2048;
  constexpr std::int64_t kDim = 128;
  const auto tensor = [&](std::int64_t heads, std::size_t first) {
    const ops::RopeStrides strides{
        .batch = kLength * heads * kDim, .sequence = heads * kDim, .head = kDim};
    return ops::RopeTensor{.out = at[first],
                           .in = at[first + 1],
                           .heads = heads,
                           .out_strides = strides,
                           .in_strides = strides};
  };
  return {.dtype = dtype,
          .style = ops::RopeStyle::kHalf,
          .batch = kBatch,
          .sequence = kLength,
          .head_dim = kDim,
          .rotary_dim = kDim,
          .q = tensor(32, 0),
          .k = tensor(8, 2),
          .table = {.cos = at[4],
                    .sin = at[5],
                    .dtype = DType::kF32,
                    .positions = kLength,
                    .columns = kDim}};
}

void add_rope(std::vector<BenchCase>& cases, DType dtype) {
  constexpr std::int64_t kTokens = 4LL * 2048;
  const std::uint64_t q = bytes_of(dtype, kTokens * 32 * 128);
  const std::uint64_t k = bytes_of(dtype, kTokens * 8 * 128);
  const std::uint64_t table = 2048LL * 128 * sizeof(float);
  BenchCase forward{.operation = "rope_forward",
                    .what = "half, 8192 x (32 + 8) x 128",
                    .dtype = dtype,
                    .least_bytes = 2 * (q + k + table),
                    .goal = kForwardGoal,
                    .tensors = {{.bytes = q},
                                {.bytes = q},
                                {.bytes = k},
                                {.bytes = k},
                                {.bytes = table},
                                {.bytes = table}},
                    .start = [=](Service& service, CUstream_st* stream, Addresses at) {
                      return ops::rope_forward(
                          service, stream, ops::RopeForward{rope_arguments(dtype, at)});
                    }};
  BenchCase backward = forward;
  backward.operation = "rope_backward";
  backward.start = [=](Service& service, CUstream_st* stream, Addresses at) {
    return ops::rope_backward(service, stream,
                              ops::RopeBackward{rope_arguments(dtype, at)});
  };
  cases.push_back(std::move(forward));
  cases.push_back(std::move(backward));
}

void add_rmsnorm(std::vector<BenchCase>& cases, DType dtype, std::int64_t rows,
                 std::int64_t cols, bool residual) {
  const std::uint64_t tensor = bytes_of(dtype, rows * cols);
  const std::uint64_t weight = bytes_of(dtype, cols);
  const auto rows_bytes = static_cast<std::uint64_t>(rows) * sizeof(float);
  const std::string what =
      fmt::format("{}{} x {}", residual ? "residual, " : "", rows, cols);
  BenchCase forward{.operation = "rmsnorm_forward",
                    .what = what,
                    .dtype = dtype,
                    .least_bytes = (residual ? 4 : 2) * tensor + weight + rows_bytes,
                    .goal = kForwardGoal,
                    .tensors = {{.bytes = tensor},
                                {.bytes = tensor},
                                {.bytes = weight},
                                {.bytes = rows_bytes}},
                    .start = [=](Service& service, CUstream_st* stream, Addresses at) {
                      return ops::rmsnorm_forward(
                          service, stream,
                          {.dtype = dtype,
                           .y = at[0],
                           .x = at[1],
                           .weight = at[2],
                           .rstd = static_cast<float*>(at[3]),
                           .rows = rows,
                           .cols = cols,
                           .adds_residual = residual,
                           .residual = residual ? at[4] : nullptr,
                           .sum = residual ? at[5] : nullptr});
                    }};
  if (residual)
    forward.tensors.insert(forward.tensors.end(),
                           {{.bytes = tensor}, {.bytes = tensor}});
  cases.push_back(std::move(forward));
}

void add_layernorm(std::vector<BenchCase>& cases, DType dtype, std::int64_t rows,
                   std::int64_t cols) {
  const std::uint64_t tensor = bytes_of(dtype, rows * cols);
  const std::uint64_t weight = bytes_of(dtype, cols);
  const auto rows_bytes = static_cast<std::uint64_t>(rows) * sizeof(float);
  const std::string what = fmt::format("{} x {}", rows, cols);
  cases.push_back({.operation = "layernorm_forward",
                   .what = what,
                   .dtype = dtype,
                   .least_bytes = 2 * tensor + 2 * weight + 2 * rows_bytes,
                   .goal = kForwardGoal,
                   .tensors = {{.bytes = tensor},
                               {.bytes = tensor},
                               {.bytes = weight},
                               {.bytes = weight},
                               {.bytes = rows_bytes},
                               {.bytes = rows_bytes}},
                   .start = [=](Service& service, CUstream_st* stream, Addresses at) {
                     return ops::layernorm_forward(service, stream,
                                                   {.dtype = dtype,
                                                    .y = at[0],
                                                    .x = at[1],
                                                    .weight = at[2],
                                                    .bias = at[3],
                                                    .mean = static_cast<float*>(at[4]),
                                                    .rstd = static_cast<float*>(at[5]),
                                                    .rows = rows,
                                                    .cols = cols});
                   }});
}

// The gradients of a norm: the workspace is the last tensor.
template <typename Args>
BenchCase norm_backward(const char* operation, DType dtype, std::int64_t rows,
                        std::int64_t cols, std::uint64_t workspace, Args args,
                        Result<void> (*run)(Service&, CUstream_st*, const Args&)) {
  const std::uint64_t tensor = bytes_of(dtype, rows * cols);
  const std::uint64_t weight = bytes_of(dtype, cols);
  const auto rows_bytes = static_cast<std::uint64_t>(rows) * sizeof(float);
  return {.operation = operation,
          .what = fmt::format("{} x {}", rows, cols),
          .dtype = dtype,
          .least_bytes = 3 * tensor + 2 * weight + rows_bytes,
          .goal = kBackwardGoal,
          .tensors = {{.bytes = tensor},
                      {.bytes = tensor},
                      {.bytes = tensor},
                      {.bytes = weight},
                      {.bytes = weight},
                      {.bytes = rows_bytes},
                      {.bytes = rows_bytes},
                      {.bytes = weight},
                      {.bytes = workspace}},
          .start = [=](Service& service, CUstream_st* stream, Addresses at) {
            Args now = args;
            now.dx = at[0];
            now.dy = at[1];
            now.x = at[2];
            now.weight = at[3];
            now.dweight = at[4];
            now.rstd = static_cast<const float*>(at[5]);
            if constexpr (requires { now.mean; }) {
              now.mean = static_cast<const float*>(at[6]);
              now.dbias = at[7];
            }
            now.workspace = at[8];
            now.workspace_bytes = workspace;
            return run(service, stream, now);
          }};
}

void add_norms(std::vector<BenchCase>& cases, DType dtype, const Device& device) {
  constexpr std::int64_t kElements = 8192LL * 8192;
  for (const std::int64_t cols : {1024, 4096, 8192, 65536}) {
    const std::int64_t rows = kElements / cols;
    add_layernorm(cases, dtype, rows, cols);
    const ops::LayerNormBackward layernorm{.dtype = dtype, .rows = rows, .cols = cols};
    cases.push_back(norm_backward(
        "layernorm_backward", dtype, rows, cols,
        ops::layernorm_backward_workspace_bytes(layernorm, device).value_or(0),
        layernorm, ops::layernorm_backward));
    add_rmsnorm(cases, dtype, rows, cols, false);
    add_rmsnorm(cases, dtype, rows, cols, true);
    const ops::RmsNormBackward rmsnorm{.dtype = dtype, .rows = rows, .cols = cols};
    cases.push_back(norm_backward(
        "rmsnorm_backward", dtype, rows, cols,
        ops::rmsnorm_backward_workspace_bytes(rmsnorm, device).value_or(0), rmsnorm,
        ops::rmsnorm_backward));
  }
}

void add_activation(std::vector<BenchCase>& cases, DType dtype, const Device& device,
                    ops::ActivationKind kind, const char* name) {
  constexpr std::int64_t kRows = 8192;
  constexpr std::int64_t kCols = 32768;
  const std::uint64_t tensor = bytes_of(dtype, kRows * kCols);
  const std::uint64_t bias = bytes_of(dtype, kCols);
  const std::string what = fmt::format("{}, bias, {} x {}", name, kRows, kCols);
  cases.push_back({.operation = "activation_forward",
                   .what = what,
                   .dtype = dtype,
                   .least_bytes = 2 * tensor + bias,
                   .goal = kForwardGoal,
                   .tensors = {{.bytes = tensor}, {.bytes = tensor}, {.bytes = bias}},
                   .start = [=](Service& service, CUstream_st* stream, Addresses at) {
                     return ops::activation_forward(service, stream,
                                                    {.dtype = dtype,
                                                     .kind = kind,
                                                     .y = at[0],
                                                     .x = at[1],
                                                     .has_bias = true,
                                                     .bias = at[2],
                                                     .rows = kRows,
                                                     .cols = kCols});
                   }});
  ops::ActivationBackward args{
      .dtype = dtype, .kind = kind, .has_bias = true, .rows = kRows, .cols = kCols};
  args.workspace_bytes =
      ops::activation_backward_workspace_bytes(args, device).value_or(0);
  cases.push_back({.operation = "activation_backward",
                   .what = what,
                   .dtype = dtype,
                   .least_bytes = 3 * tensor + 2 * bias,
                   .goal = kBackwardGoal,
                   .tensors = {{.bytes = tensor},
                               {.bytes = tensor},
                               {.bytes = tensor},
                               {.bytes = bias},
                               {.bytes = bias},
                               {.bytes = args.workspace_bytes}},
                   .start = [=](Service& service, CUstream_st* stream, Addresses at) {
                     ops::ActivationBackward now = args;
                     now.dx = at[0];
                     now.dy = at[1];
                     now.x = at[2];
                     now.bias = at[3];
                     now.dbias = at[4];
                     now.workspace = at[5];
                     return ops::activation_backward(service, stream, now);
                   }});
}

void add_glu(std::vector<BenchCase>& cases, DType dtype, ops::GluKind kind,
             const char* name) {
  constexpr std::int64_t kRows = 8192;
  constexpr std::int64_t kCols = 32768;
  const std::uint64_t tensor = bytes_of(dtype, kRows * kCols);
  const std::string what = fmt::format("{}, packed, {} x 2 x {}", name, kRows, kCols);
  cases.push_back({.operation = "glu_forward",
                   .what = what,
                   .dtype = dtype,
                   .least_bytes = 3 * tensor,
                   .goal = kForwardGoal,
                   .tensors = {{.bytes = tensor}, {.bytes = 2 * tensor}},
                   .start = [=](Service& service, CUstream_st* stream, Addresses at) {
                     return ops::glu_forward(service, stream,
                                             {.dtype = dtype,
                                              .kind = kind,
                                              .y = at[0],
                                              .x = at[1],
                                              .rows = kRows,
                                              .cols = kCols});
                   }});
  cases.push_back(
      {.operation = "glu_backward",
       .what = what,
       .dtype = dtype,
       .least_bytes = 5 * tensor,
       .goal = kForwardGoal,
       .tensors = {{.bytes = 2 * tensor}, {.bytes = tensor}, {.bytes = 2 * tensor}},
       .start = [=](Service& service, CUstream_st* stream, Addresses at) {
         return ops::glu_backward(service, stream,
                                  {.dtype = dtype,
                                   .kind = kind,
                                   .dx = at[0],
                                   .dy = at[1],
                                   .x = at[2],
                                   .rows = kRows,
                                   .cols = kCols});
       }});
}

// Every target is word 0, which is in every vocabulary.
void add_cross_entropy(std::vector<BenchCase>& cases, DType dtype) {
  constexpr std::int64_t kRows = 8192;
  constexpr std::int64_t kVocabulary = 128256;
  const std::uint64_t tensor = bytes_of(dtype, kRows * kVocabulary);
  const std::uint64_t losses = kRows * sizeof(float);
  const std::uint64_t targets = kRows * sizeof(std::int64_t);
  cases.push_back(
      {.operation = "cross_entropy",
       .what = fmt::format("loss and gradient, {} x {}", kRows, kVocabulary),
       .dtype = dtype,
       .least_bytes = 2 * tensor + losses + targets,
       .goal = kBackwardGoal,
       .tensors = {{.bytes = tensor},
                   {.bytes = tensor},
                   {.bytes = losses},
                   {.bytes = targets, .fill = BenchTensor::Fill::kZeros}},
       .start = [=](Service& service, CUstream_st* stream, Addresses at) {
         return ops::cross_entropy(service, stream,
                                   {.dtype = dtype,
                                    .loss = static_cast<float*>(at[2]),
                                    .dlogits = at[0],
                                    .logits = at[1],
                                    .targets = at[3],
                                    .rows = kRows,
                                    .vocabulary = kVocabulary});
       }});
}

}  // namespace

std::vector<BenchCase> bench_cases(const Device& device) {
  std::vector<BenchCase> cases;
  for (const DType dtype : kTypes) {
    add_softmax(cases, dtype, ops::SoftmaxMask::kNone, "plain");
    add_softmax(cases, dtype, ops::SoftmaxMask::kBytes, "masked");
    add_softmax(cases, dtype, ops::SoftmaxMask::kCausal, "causal");
    add_rope(cases, dtype);
    add_norms(cases, dtype, device);
    add_activation(cases, dtype, device, ops::ActivationKind::kGeluTanh, "gelu_tanh");
    add_activation(cases, dtype, device, ops::ActivationKind::kGeluErf, "gelu_erf");
    add_glu(cases, dtype, ops::GluKind::kSwiGlu, "swiglu");
    add_glu(cases, dtype, ops::GluKind::kGeGluTanh, "geglu_tanh");
    add_cross_entropy(cases, dtype);
  }
  return cases;
}

}  // namespace kiln::tools
