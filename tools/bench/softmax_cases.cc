#include <fmt/format.h>

#include "kiln/ops/softmax.h"
#include "tools/bench/families.h"

namespace kiln::tools {
namespace {

void add_softmax(std::vector<BenchCase>& cases, ops::DType dtype, ops::SoftmaxMask mask,
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
                   .work = BytesMoved{.least = seen + whole + (has_mask ? kMask : 0),
                                      .goal = kForwardGoal},
                   .tensors = tensors,
                   .start = [=](Service& service, const Device& on, CUstream_st* stream,
                                BenchAddresses at) {
                     return ops::softmax_forward(
                         service, on, stream,
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
                   .work = BytesMoved{.least = 2 * seen + whole, .goal = kBackwardGoal},
                   .tensors = tensors_of_bytes({whole, whole, whole}),
                   .start = [=](Service& service, const Device& on, CUstream_st* stream,
                                BenchAddresses at) {
                     return ops::softmax_backward(service, on, stream,
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

}  // namespace

void add_softmax_cases(std::vector<BenchCase>& cases, ops::DType dtype) {
  add_softmax(cases, dtype, ops::SoftmaxMask::kNone, "plain");
  add_softmax(cases, dtype, ops::SoftmaxMask::kBytes, "masked");
  add_softmax(cases, dtype, ops::SoftmaxMask::kCausal, "causal");
}

}  // namespace kiln::tools
