#include <fmt/format.h>

#include <algorithm>

#include "kiln/ops/cross_entropy.h"
#include "tools/bench/families.h"

namespace kiln::tools {
namespace {

constexpr std::int64_t kTokens = 8192;
constexpr std::int64_t kVocabulary = 128256;
constexpr std::uint64_t kFloats = kTokens * sizeof(float);
constexpr std::uint64_t kTargets = kTokens * sizeof(std::int64_t);

// Every target is word 0, which is in every vocabulary.
const BenchTensor kTargetTensor{.bytes = kTargets, .fill = BenchTensor::Fill::kZeros};

/// The bytes that loss and gradient in one pass read twice: the logits that fit neither
/// in the block's registers nor in its share of the L2 cache. The streaming stores
/// leave that share to the logits.
double extra_bytes(ops::DType dtype) {
  constexpr double kRegisters = 64.0 * 1024;
  const auto row = static_cast<double>(bytes_of(dtype, kVocabulary));
  return kTokens * std::max(0.0, row - kRegisters - kBlockCacheBytes);
}

BenchCase loss_and_gradient(ops::DType dtype) {
  const std::uint64_t tensor = bytes_of(dtype, kTokens * kVocabulary);
  const std::uint64_t least = 2 * tensor + kFloats + kTargets;
  return {.operation = "cross_entropy",
          .what = fmt::format("loss and gradient, {} x {}", kTokens, kVocabulary),
          .dtype = dtype,
          .work = BytesMoved{.least = least,
                             .goal = goal_of(kBackwardGoal, least, extra_bytes(dtype))},
          .tensors = {{.bytes = tensor},
                      {.bytes = tensor},
                      {.bytes = kFloats},
                      kTargetTensor},
          .start = [=](Service& service, const Device& on, CUstream_st* stream,
                       BenchAddresses at) {
            return ops::cross_entropy(service, on, stream,
                                      {.dtype = dtype,
                                       .loss = static_cast<float*>(at[2]),
                                       .dlogits = at[0],
                                       .logits = at[1],
                                       .targets = at[3],
                                       .rows = kTokens,
                                       .vocabulary = kVocabulary});
          }};
}

BenchCase loss(ops::DType dtype) {
  const std::uint64_t tensor = bytes_of(dtype, kTokens * kVocabulary);
  return {.operation = "cross_entropy_forward",
          .what = fmt::format("loss, {} x {}", kTokens, kVocabulary),
          .dtype = dtype,
          .work = BytesMoved{.least = tensor + 3 * kFloats + kTargets,
                             .goal = kForwardGoal},
          .tensors = {{.bytes = tensor},
                      {.bytes = kFloats},
                      {.bytes = 2 * kFloats},
                      kTargetTensor},
          .start = [=](Service& service, const Device& on, CUstream_st* stream,
                       BenchAddresses at) {
            return ops::cross_entropy_forward(service, on, stream,
                                              {.dtype = dtype,
                                               .loss = static_cast<float*>(at[1]),
                                               .saved = static_cast<float*>(at[2]),
                                               .logits = at[0],
                                               .targets = at[3],
                                               .rows = kTokens,
                                               .vocabulary = kVocabulary});
          }};
}

BenchCase gradient(ops::DType dtype) {
  const std::uint64_t tensor = bytes_of(dtype, kTokens * kVocabulary);
  return {.operation = "cross_entropy_backward",
          .what = fmt::format("gradient, {} x {}", kTokens, kVocabulary),
          .dtype = dtype,
          .work = BytesMoved{.least = 2 * tensor + 2 * kFloats + kTargets,
                             .goal = kBackwardGoal},
          .tensors = {{.bytes = tensor},
                      {.bytes = tensor},
                      {.bytes = 2 * kFloats},
                      kTargetTensor},
          .start = [=](Service& service, const Device& on, CUstream_st* stream,
                       BenchAddresses at) {
            return ops::cross_entropy_backward(
                service, on, stream,
                {.dtype = dtype,
                 .dlogits = at[0],
                 .logits = at[1],
                 .saved = static_cast<const float*>(at[2]),
                 .targets = at[3],
                 .rows = kTokens,
                 .vocabulary = kVocabulary});
          }};
}

}  // namespace

void add_cross_entropy_cases(std::vector<BenchCase>& cases, ops::DType dtype) {
  cases.push_back(loss_and_gradient(dtype));
  cases.push_back(loss(dtype));
  cases.push_back(gradient(dtype));
}

}  // namespace kiln::tools
