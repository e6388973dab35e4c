#include <fmt/format.h>

#include <utility>

#include "kiln/ops/rope.h"
#include "tools/bench/families.h"

namespace kiln::tools {
namespace {

// 4 sequences of 2048 tokens, 32 heads of queries and 8 of keys.
constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kLength = 2048;
constexpr std::int64_t kQueryHeads = 32;
constexpr std::int64_t kKeyHeads = 8;
constexpr std::int64_t kDim = 128;

struct RopeForm {
  ops::RopeStyle style;
  bool has_angles;  // else float cosines and sines
  const char* name;
};

ops::RopeArguments rope_arguments(ops::DType dtype, const RopeForm& form,
                                  BenchAddresses at) {
  const auto tensor = [&](std::int64_t heads, std::size_t first) {
    const ops::RopeStrides strides{
        .batch = kLength * heads * kDim, .sequence = heads * kDim, .head = kDim};
    return ops::RopeTensor{.out = at[first],
                           .in = at[first + 1],
                           .heads = heads,
                           .out_strides = strides,
                           .in_strides = strides};
  };
  ops::RopeTable table{.positions = kLength, .columns = kDim};
  if (form.has_angles) {
    table.angles = static_cast<const float*>(at[4]);
  } else {
    table.cos = at[4];
    table.sin = at[5];
    table.dtype = ops::DType::kF32;
  }
  return {.dtype = dtype,
          .style = form.style,
          .batch = kBatch,
          .sequence = kLength,
          .head_dim = kDim,
          .rotary_dim = kDim,
          .q = tensor(kQueryHeads, 0),
          .k = tensor(kKeyHeads, 2),
          .table = table};
}

void add_rope(std::vector<BenchCase>& cases, ops::DType dtype, const RopeForm& form) {
  constexpr std::int64_t kTokens = kBatch * kLength;
  const std::uint64_t q = bytes_of(dtype, kTokens * kQueryHeads * kDim);
  const std::uint64_t k = bytes_of(dtype, kTokens * kKeyHeads * kDim);
  const std::uint64_t table = kLength * kDim * sizeof(float);
  BenchCase forward{
      .operation = "rope_forward",
      .what = fmt::format("{}, {} x ({} + {}) x {}", form.name, kTokens, kQueryHeads,
                          kKeyHeads, kDim),
      .dtype = dtype,
      .work = BytesMoved{.least = 2 * (q + k) + (form.has_angles ? 1 : 2) * table,
                         .goal = kForwardGoal},
      .tensors = tensors_of_bytes({q, q, k, k, table, table}),
      .start = [=](Service& service, const Device& on, CUstream_st* stream,
                   BenchAddresses at) {
        return ops::rope_forward(service, on, stream,
                                 ops::RopeForward{rope_arguments(dtype, form, at)});
      }};
  BenchCase backward = forward;
  backward.operation = "rope_backward";
  backward.start = [=](Service& service, const Device& on, CUstream_st* stream,
                       BenchAddresses at) {
    return ops::rope_backward(service, on, stream,
                              ops::RopeBackward{rope_arguments(dtype, form, at)});
  };
  cases.push_back(std::move(forward));
  cases.push_back(std::move(backward));
}

}  // namespace

void add_rope_cases(std::vector<BenchCase>& cases, ops::DType dtype) {
  using enum ops::RopeStyle;
  add_rope(cases, dtype, {.style = kHalf, .has_angles = false, .name = "half"});
  if (dtype != kRareFormDType)
    return;
  add_rope(cases, dtype, {.style = kHalf, .has_angles = true, .name = "half, angles"});
  add_rope(cases, dtype,
           {.style = kInterleaved, .has_angles = true, .name = "interleaved, angles"});
}

}  // namespace kiln::tools
