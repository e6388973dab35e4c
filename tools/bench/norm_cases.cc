#include <fmt/format.h>

#include <algorithm>

#include "kiln/ops/norm.h"
#include "tools/bench/families.h"

namespace kiln::tools {
namespace {

struct Shape {
  ops::DType dtype;
  std::int64_t rows;
  std::int64_t cols;
  bool residual = false;

  [[nodiscard]] std::string what() const {
    return fmt::format("{}{} x {}", residual ? "residual, " : "", rows, cols);
  }
  [[nodiscard]] std::uint64_t tensor() const { return bytes_of(dtype, rows * cols); }
  [[nodiscard]] std::uint64_t weight() const { return bytes_of(dtype, cols); }
  [[nodiscard]] std::uint64_t statistics() const {
    return static_cast<std::uint64_t>(rows) * sizeof(float);
  }
};

// ---- Bytes beyond the minimum that kernels for the longest rows move on an H100. They
// ---- pass over a row several times (templates/norm); shorter rows stay in registers.

constexpr std::int64_t kLongestKept = 8192;

/// The fraction of a second read that comes from memory again, if `bytes` were moved in
/// between: a block's share of the L2 cache keeps only its own size.
double miss_fraction(double bytes) {
  return std::max(0.0, 1 - kBlockCacheBytes / bytes);
}

double forward_extra_bytes(const Shape& shape) {
  const auto row = static_cast<double>(shape.weight());
  const double kept = 1024.0 * 16 * (shape.residual ? 3 : 6);
  if (shape.cols <= kLongestKept || row <= kept)
    return 0;
  const int passed = shape.residual ? 3 : 2;
  return static_cast<double>(shape.tensor()) * miss_fraction(passed * row);
}

/// `sums`: 2 with a bias, else 1.
double backward_extra_bytes(const Shape& shape, int sums) {
  if (shape.cols <= kLongestKept)
    return 0;
  constexpr double kShared = 224 << 10;
  const auto cols = static_cast<double>(shape.cols);
  const auto row = static_cast<double>(shape.weight());
  const double inputs = 2 * static_cast<double>(shape.tensor());
  const double first = std::min(1.0, kShared / sizeof(float) / sums / cols);
  const int passed = shape.residual ? 4 : 3;
  const double for_dx = inputs * miss_fraction(passed * row);
  const double for_first_columns = inputs * first * miss_fraction(passed * row * first);
  const double for_other_columns = inputs * (1 - first);
  // Each block writes its partial sums, which are read again to be added up.
  const double partials = 132 * cols * sizeof(float) * sums;
  return for_dx + for_first_columns + for_other_columns +
         (partials > kCacheBytes ? 2 * partials : 0);
}

// ---- The cases

/// In bytes; 0 for what the operation does not have.
struct Sizes {
  std::uint64_t tensor, weight, statistics, bias, mean, residual;
};

Sizes sizes_of(const Shape& shape, bool is_layer_norm) {
  return {.tensor = shape.tensor(),
          .weight = shape.weight(),
          .statistics = shape.statistics(),
          .bias = is_layer_norm ? shape.weight() : 0,
          .mean = is_layer_norm ? shape.statistics() : 0,
          .residual = shape.residual ? shape.tensor() : 0};
}

template <typename Args>
BenchCase norm_forward(const char* operation, const Shape& shape,
                       Result<void> (*run)(Service&, const Device&, CUstream_st*,
                                           const Args&)) {
  constexpr bool kIsLayerNorm = requires(Args args) {
    args.bias;
  };
  const auto [tensor, weight, statistics, bias, mean, residual] =
      sizes_of(shape, kIsLayerNorm);
  const std::uint64_t least =
      2 * tensor + 2 * residual + weight + bias + mean + statistics;
  const double goal = goal_of(kForwardGoal, least, forward_extra_bytes(shape));
  return {.operation = operation,
          .what = shape.what(),
          .dtype = shape.dtype,
          .work = BytesMoved{.least = least, .goal = goal},
          .tensors = tensors_of_bytes(
              {tensor, tensor, weight, statistics, residual, residual, bias, mean}),
          .start = [=](Service& service, const Device& on, CUstream_st* stream,
                       BenchAddresses at) {
            Args args{.dtype = shape.dtype};
            args.y = at[0];
            args.x = at[1];
            args.weight = at[2];
            args.rstd = static_cast<float*>(at[3]);
            args.rows = shape.rows;
            args.cols = shape.cols;
            args.adds_residual = shape.residual;
            args.residual = at[4];
            args.sum = at[5];
            if constexpr (kIsLayerNorm) {
              args.bias = at[6];
              args.mean = static_cast<float*>(at[7]);
            }
            return run(service, on, stream, args);
          }};
}

template <typename Args>
BenchCase norm_backward(const char* operation, const Shape& shape, const Device& device,
                        Result<std::uint64_t> (*workspace_bytes)(const Device&,
                                                                 const Args&),
                        Result<void> (*run)(Service&, const Device&, CUstream_st*,
                                            const Args&)) {
  constexpr bool kIsLayerNorm = requires(Args args) {
    args.dbias;
  };
  Args args{.dtype = shape.dtype};
  args.rows = shape.rows;
  args.cols = shape.cols;
  args.adds_residual = shape.residual;
  args.workspace_bytes = workspace_bytes(device, args).value_or(0);
  const auto [tensor, weight, statistics, bias, mean, residual] =
      sizes_of(shape, kIsLayerNorm);
  const std::uint64_t least =
      3 * tensor + residual + 2 * weight + bias + mean + statistics;
  const double goal =
      goal_of(kBackwardGoal, least, backward_extra_bytes(shape, kIsLayerNorm ? 2 : 1));
  return {
      .operation = operation,
      .what = shape.what(),
      .dtype = shape.dtype,
      .work = BytesMoved{.least = least, .goal = goal},
      .tensors = tensors_of_bytes({tensor, tensor, tensor, weight, weight, statistics,
                                   residual, args.workspace_bytes, bias, mean}),
      .start = [=](Service& service, const Device& on, CUstream_st* stream,
                   BenchAddresses at) {
        Args now = args;
        now.dx = at[0];
        now.dy = at[1];
        now.x = at[2];
        now.weight = at[3];
        now.dweight = at[4];
        now.rstd = static_cast<const float*>(at[5]);
        now.dsum = at[6];
        now.workspace = at[7];
        if constexpr (kIsLayerNorm) {
          now.dbias = at[8];
          now.mean = static_cast<const float*>(at[9]);
        }
        return run(service, on, stream, now);
      }};
}

BenchCase layernorm_forward(const Shape& shape) {
  return norm_forward("layernorm_forward", shape, ops::layernorm_forward);
}
BenchCase rmsnorm_forward(const Shape& shape) {
  return norm_forward("rmsnorm_forward", shape, ops::rmsnorm_forward);
}
BenchCase layernorm_backward(const Shape& shape, const Device& device) {
  return norm_backward("layernorm_backward", shape, device,
                       ops::layernorm_backward_workspace_bytes,
                       ops::layernorm_backward);
}
BenchCase rmsnorm_backward(const Shape& shape, const Device& device) {
  return norm_backward("rmsnorm_backward", shape, device,
                       ops::rmsnorm_backward_workspace_bytes, ops::rmsnorm_backward);
}

}  // namespace

void add_norm_cases(std::vector<BenchCase>& cases, ops::DType dtype,
                    const Device& device) {
  constexpr std::int64_t kElements = 8192LL * 8192;
  for (const std::int64_t cols : {1024, 4096, 8192, 65536}) {
    const Shape plain{.dtype = dtype, .rows = kElements / cols, .cols = cols};
    Shape residual = plain;
    residual.residual = true;
    const bool is_rare = dtype == kRareFormDType && cols == 4096;
    cases.push_back(layernorm_forward(plain));
    if (is_rare)
      cases.push_back(layernorm_forward(residual));
    cases.push_back(layernorm_backward(plain, device));
    if (is_rare)
      cases.push_back(layernorm_backward(residual, device));
    cases.push_back(rmsnorm_forward(plain));
    cases.push_back(rmsnorm_forward(residual));
    cases.push_back(rmsnorm_backward(plain, device));
    if (is_rare)
      cases.push_back(rmsnorm_backward(residual, device));
  }
}

}  // namespace kiln::tools
