// The cases of each family of operations, one file a family, and what these share.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kiln/device.h"
#include "kiln/ops/dtype.h"
#include "tools/bench/cases.h"

namespace kiln::tools {

using BenchAddresses = std::span<void* const>;

constexpr double kForwardGoal = 0.90;
constexpr double kBackwardGoal = 0.85;

/// Forms that move memory as others do and differ in arithmetic are measured in this
/// type alone: what a run takes is mostly the building of kernels.
constexpr ops::DType kTypeOfRareForms = ops::DType::kBf16;

[[nodiscard]] inline std::uint64_t bytes_of(ops::DType dtype, std::int64_t elements) {
  return static_cast<std::uint64_t>(elements) * ops::size_bytes(dtype);
}

/// What an H100 has of cache for each of its 132 multiprocessors: where a row takes one
/// of these to itself, what is gone over twice should fit.
constexpr double kCacheBytes = 50.0 * (1 << 20);
constexpr double kBlockCacheBytes = kCacheBytes / 132;

/// The goal of a kernel that moves `again_bytes` more than the least, because the
/// design reads or writes something twice.
[[nodiscard]] inline double goal_of(double goal, std::uint64_t least_bytes,
                                    double again_bytes) {
  const auto least = static_cast<double>(least_bytes);
  return goal * least / (least + again_bytes);
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
