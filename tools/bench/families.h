// The cases of each family of operations, one file per family, and what they share.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "kiln/device.h"
#include "kiln/ops/dtype.h"
#include "tools/bench/cases.h"

namespace kiln::tools {

using BenchAddresses = std::span<void* const>;

constexpr double kForwardGoal = 0.90;
constexpr double kBackwardGoal = 0.85;

/// Forms that differ from others in arithmetic but not in memory traffic run in this
/// type alone: most of a run's time goes into building kernels.
constexpr ops::DType kRareFormDType = ops::DType::kBf16;

[[nodiscard]] inline std::uint64_t bytes_of(ops::DType dtype, std::int64_t elements) {
  return static_cast<std::uint64_t>(elements) * ops::size_bytes(dtype);
}

[[nodiscard]] inline std::vector<BenchTensor> tensors_of_bytes(
    std::initializer_list<std::uint64_t> sizes) {
  std::vector<BenchTensor> tensors;
  for (const std::uint64_t bytes : sizes) tensors.push_back({.bytes = bytes});
  return tensors;
}

/// The L2 cache of an H100, and the share of each of its 132 multiprocessors. If one
/// multiprocessor works on a row, data that it reads twice should fit in its share.
constexpr double kCacheBytes = 50.0 * (1 << 20);
constexpr double kBlockCacheBytes = kCacheBytes / 132;

/// The goal of a kernel that moves `extra_bytes` more than the least, because the
/// design reads or writes something twice.
[[nodiscard]] inline double goal_of(double goal, std::uint64_t least_bytes,
                                    double extra_bytes) {
  const auto least = static_cast<double>(least_bytes);
  return goal * least / (least + extra_bytes);
}

void add_softmax_cases(std::vector<BenchCase>& cases, ops::DType dtype);
void add_rope_cases(std::vector<BenchCase>& cases, ops::DType dtype);
void add_norm_cases(std::vector<BenchCase>& cases, ops::DType dtype,
                    const Device& device);
void add_activation_cases(std::vector<BenchCase>& cases, ops::DType dtype,
                          const Device& device);
void add_cross_entropy_cases(std::vector<BenchCase>& cases, ops::DType dtype);
void add_attention_cases(std::vector<BenchCase>& cases, ops::DType dtype,
                         const Device& device);

}  // namespace kiln::tools
