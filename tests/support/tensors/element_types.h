// The kernels' element types on the host: storage, rounding, and the size of an ulp.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "kiln/ops/dtype.h"
#include "tests/support/kernels/conversions.h"

namespace kiln::test {

// kDigits counts the significand's bits.
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

/// The type that `name` names.
inline ops::DType dtype_of(std::string_view name) {
  return name == "f16"    ? ops::DType::kF16
         : name == "bf16" ? ops::DType::kBf16
                          : ops::DType::kF32;
}

/// Calls `function` with the template argument T that `dtype` is.
template <typename Function>
auto with_type(ops::DType dtype, const Function& function) {
  return dtype == ops::DType::kF16    ? function.template operator()<F16>()
         : dtype == ops::DType::kBf16 ? function.template operator()<Bf16>()
                                      : function.template operator()<F32>();
}
template <typename Function>
auto with_type(std::string_view dtype, const Function& function) {
  return with_type(dtype_of(dtype), function);
}

/// With two: what `dtype` is, and the same again or, if not `is_same`, a float.
template <typename Function>
auto with_types(ops::DType dtype, bool is_same, const Function& function) {
  return with_type(dtype, [&]<typename T>() {
    return is_same ? function.template operator()<T, T>()
                   : function.template operator()<T, F32>();
  });
}

}  // namespace kiln::test
