// The floating-point formats of PTX beside C++'s own, and their rounding (PTX ISA,
// "Alternate Floating-Point Data Formats"; OCP 8-bit Floating Point Specification for
// e4m3 and e5m2). Thread-safe.

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tests/support/ptx/program.h"

namespace kiln::ptx {

struct Half {
  std::uint16_t bits;
};
struct Bfloat {
  std::uint16_t bits;
};

/// What arithmetic makes of any NaN: the "canonical" one.
inline constexpr std::uint32_t kNan32 = 0x7fffffff;
inline constexpr std::uint16_t kNan16 = 0x7fff;

/// A float's arithmetic gives one NaN.
inline float canonical(float value) {
  return value != value ? std::bit_cast<float>(kNan32) : value;
}
/// Of a NaN the quiet one.
inline double quieted(double value) {
  return value != value ? std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) |
                                                0x8'0000'0000'0000ULL)
                        : value;
}

/// What an operation of doubles makes that has no result.
inline constexpr std::uint64_t kNan64 = 0xfff8'0000'0000'0000;

/// A result with the NaN of a device of compute capability 9.0: of floats the
/// canonical one, of doubles the last NaN among the operands, which are in the order of
/// that device's choice.
template <typename... Operands>
float with_nan(float result, Operands...) {
  return canonical(result);
}
template <typename... Operands>
double with_nan(double result, Operands... operands) {
  if (result == result)
    return result;
  double nan = std::bit_cast<double>(kNan64);
  ((nan = operands != operands ? quieted(operands) : nan), ...);
  return nan;
}

/// a / b, and a * b + c.
template <typename T>
T quotient_with_nan(T result, T a, T b) {
  return with_nan(result, b, a);
}
template <typename T>
T fused_with_nan(T result, T a, T b, T c) {
  return with_nan(result, a, c, b);
}

inline float to_float(Half half) {
  const std::uint32_t magnitude = half.bits & 0x7fffU;
  const std::uint32_t sign = (half.bits & 0x8000U) << 16U;
  // The exponent's bias differs by 112; a product also makes subnormals normal.
  const float scaled = std::bit_cast<float>(magnitude << 13U) * 0x1p112F;
  const std::uint32_t special = magnitude >= 0x7c00U ? 0x7f800000U : 0U;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}
inline float to_float(Bfloat bfloat) {
  return std::bit_cast<float>(std::uint32_t{bfloat.bits} << 16U);
}
inline float to_float(float value) {
  return value;
}

/// To the nearest, ties to even.
inline Half to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const float magnitude = std::fabs(value);
  // At least 2^-14: round the mantissa in place. Below: an addition rounds at 2^-24.
  const std::uint32_t normal = std::bit_cast<std::uint32_t>(magnitude) + 0xfffU +
                               ((std::bit_cast<std::uint32_t>(magnitude) >> 13U) & 1U) -
                               (112U << 23U);
  const std::uint32_t small = std::bit_cast<std::uint32_t>(magnitude + 0.5F) -
                              std::bit_cast<std::uint32_t>(0.5F);
  std::uint32_t result = magnitude < 0x1p-14F ? small : normal >> 13U;
  result = result > 0x7c00U || magnitude >= 65520.0F ? 0x7c00U : result;
  return {static_cast<std::uint16_t>(value != value ? kNan16 : result | sign)};
}
inline Bfloat to_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
  return {static_cast<std::uint16_t>(value != value ? kNan16 : rounded)};
}

template <typename T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, Half>)
    return to_half(value);
  else if constexpr (std::is_same_v<T, Bfloat>)
    return to_bfloat(value);
  else
    return value;
}

/// Subnormals become zeros of their sign.
inline float flushed(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits & 0x7f800000U) == 0 ? bits & 0x80000000U : bits);
}

inline Half flushed(Half value) {
  const unsigned bits = value.bits;
  return {static_cast<std::uint16_t>((bits & 0x7c00U) == 0 ? bits & 0x8000U : bits)};
}
inline Bfloat flushed(Bfloat value) {
  const unsigned bits = value.bits;
  return {static_cast<std::uint16_t>((bits & 0x7f80U) == 0 ? bits & 0x8000U : bits)};
}
inline double flushed(double value) {
  return value;
}

/// Cut off to a float whose last bit says that something was ("round to odd").
inline float to_float_odd(double value) {
  const auto near = static_cast<float>(value);
  const auto bits = std::bit_cast<std::uint32_t>(near);
  if (static_cast<double>(near) == value || value != value || (bits & 1U) != 0)
    return near;
  const bool is_above = std::fabs(static_cast<double>(near)) > std::fabs(value);
  return std::bit_cast<float>(is_above ? bits - 1 : bits + 1);
}

/// To 0..1; of NaN 0.
template <typename T>
T saturated(T value) {
  return !(value > T{0}) ? T{0} : value > T{1} ? T{1} : value;
}

/// A format with fewer bits than a double: e8m7 is bf16.
struct Format {
  int mantissa_bits = 0;   // without the leading one
  int least_exponent = 0;  // of a normal number
  double largest = 0;      // finite
};
inline constexpr Format kHalfFormat{10, -14, 65504.0};
inline constexpr Format kBfloatFormat{7, -126, 0x1.fep127};
inline constexpr Format kFloatFormat{23, -126, 0x1.fffffep127};
inline constexpr Format kTensorFormat{10, -126, 0x1.ffcp127};
inline constexpr Format kE4m3Format{3, -6, 448.0};
inline constexpr Format kE5m2Format{2, -14, 57344.0};

/// The number of the format that `value` rounds to, infinity where it is too large.
[[nodiscard]] double rounded_to(Format format, double value, Rounding rounding);

/// An integer as it is rounded: "rni" and its like.
[[nodiscard]] double rounded_to_integer(double value, Rounding rounding);

/// Encodes what rounded_to() gave. e4m3 and e5m2: with satfinite.
[[nodiscard]] std::uint16_t half_bits(double value);
[[nodiscard]] std::uint8_t e4m3_bits(double value);
[[nodiscard]] std::uint8_t e5m2_bits(double value);
[[nodiscard]] double from_e4m3(std::uint8_t bits);
[[nodiscard]] double from_e5m2(std::uint8_t bits);

/// a * b + c, rounded once to a double whose last bit says that something was cut off
/// ("round to odd"), so that a second rounding, to 51 bits or fewer, is right.
[[nodiscard]] double fused_to_odd(double a, double b, double c);

}  // namespace kiln::ptx
