// Types that attention's kernels are proved for, each on a device that decides on its
// kernels: before 8.0 bf16 has no tensor cores, and f16 less shared memory.

#pragma once

#include <array>
#include <ostream>
#include <string>

#include "kiln/device.h"
#include "kiln/ops/dtype.h"

namespace kiln::attention_test {

struct Element {
  ops::DType dtype;
  ComputeCapability capability;
};

inline constexpr std::array<Element, 5> kElements{{{ops::DType::kBf16, {9, 0}},
                                                   {ops::DType::kF16, {8, 0}},
                                                   {ops::DType::kF16, {7, 5}},
                                                   {ops::DType::kF32, {9, 0}},
                                                   {ops::DType::kBf16, {7, 5}}}};

/// "bf16_on_90", for the name of a test.
inline std::string test_name(const Element& element) {
  return std::string(ops::to_string(element.dtype)) + "_on_" +
         std::to_string(element.capability.major) +
         std::to_string(element.capability.minor);
}

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest calls it
inline void PrintTo(const Element& element, std::ostream* out) {
  *out << test_name(element);
}

}  // namespace kiln::attention_test
