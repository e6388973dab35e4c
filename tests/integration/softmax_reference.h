// The softmax kernels' definitions in double, and the element types on the host. A test
// gives both sides the same rounded inputs.

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/cpu_kernel/cpu_kernel.h"

namespace kiln::softmax_test {

// Storage as the kernels have it; kDigits counts the significand's bits.
struct F16 {
  std::uint16_t bits;
  static constexpr int kDigits = 11;
  static constexpr int kMinExponent = -14;
  static constexpr float kLowest = -65504.0F;
  static F16 from(float x) {
    return {static_cast<std::uint16_t>(kiln_cpu::float_to_f16(x))};
  }
  [[nodiscard]] double value() const { return kiln_cpu::f16_to_float(bits); }
};

struct Bf16 {
  std::uint16_t bits;
  static constexpr int kDigits = 8;
  static constexpr int kMinExponent = -126;
  static constexpr float kLowest = -3.3895314e38F;
  static Bf16 from(float x) {
    const auto word = std::bit_cast<std::uint32_t>(x);
    if (std::isnan(x)) {
      return {0x7fff};
    }
    return {static_cast<std::uint16_t>((word + 0x7fffU + (word >> 16 & 1U)) >> 16)};
  }
  [[nodiscard]] double value() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

struct F32 {
  float bits;
  static constexpr int kDigits = 24;
  static constexpr int kMinExponent = -126;
  static constexpr float kLowest = -3.4028235e38F;
  static F32 from(float x) { return {x}; }
  [[nodiscard]] double value() const { return bits; }
};

/// The distance of two neighbours of T around `x`.
template <typename T>
double ulp(double x) {
  const int exponent = x == 0 ? T::kMinExponent : std::ilogb(x);
  return std::ldexp(1.0, std::max(exponent, T::kMinExponent) - (T::kDigits - 1));
}

/// y of one row. `visible(j)` is false for a masked column.
template <typename T, typename Visible>
std::vector<double> forward(const T* x, std::int64_t cols, float scale,
                            Visible visible) {
  std::vector<double> y(static_cast<std::size_t>(cols), 0.0);
  double top = -std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j < cols; ++j) {
    if (visible(j)) {
      top = std::max(top, double{scale} * x[j].value());
    }
  }
  double sum = 0;
  for (std::int64_t j = 0; j < cols; ++j) {
    if (visible(j)) {
      y[static_cast<std::size_t>(j)] = std::exp(double{scale} * x[j].value() - top);
      sum += y[static_cast<std::size_t>(j)];
    }
  }
  for (double& value : y) {
    value = sum == 0 ? 0 : value / sum;
  }
  return y;
}

struct Gradient {
  std::vector<double> dx;
  std::vector<double> magnitude;  // of the terms that were added and subtracted
};

/// dx of one row whose y is 0 where masked.
template <typename T>
Gradient backward(const T* y, const T* dy, std::int64_t cols, float scale) {
  double sum = 0;
  double sum_magnitude = 0;
  for (std::int64_t j = 0; j < cols; ++j) {
    sum += y[j].value() * dy[j].value();
    sum_magnitude += std::fabs(y[j].value() * dy[j].value());
  }
  Gradient result;
  for (std::int64_t j = 0; j < cols; ++j) {
    const double weight = double{scale} * y[j].value();
    result.dx.push_back(weight * (dy[j].value() - sum));
    result.magnitude.push_back(std::fabs(weight) *
                               (std::fabs(dy[j].value()) + sum_magnitude));
  }
  return result;
}

}  // namespace kiln::softmax_test
