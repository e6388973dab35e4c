#include "tests/support/ptx/numbers.h"

#include <algorithm>

namespace kiln::ptx {

double rounded_to_integer(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kZero:
      return std::trunc(value);
    case Rounding::kDown:
      return std::floor(value);
    case Rounding::kUp:
      return std::ceil(value);
    case Rounding::kNearestAway:
      return std::round(value);
    case Rounding::kNearest:
      break;
  }
  return std::nearbyint(value);
}

double rounded_to(Format format, double value, Rounding rounding) {
  if (value == 0 || !std::isfinite(value))
    return value;
  // The unit in the last place, of a subnormal that of the least normal.
  const int exponent = std::max(std::ilogb(value), format.least_exponent);
  const int unit = exponent - format.mantissa_bits;
  const double result =
      std::ldexp(rounded_to_integer(std::ldexp(value, -unit), rounding), unit);
  if (std::fabs(result) <= format.largest)
    return std::copysign(result, value);
  const bool stays = rounding == Rounding::kZero ||
                     (rounding == Rounding::kDown && value > 0) ||
                     (rounding == Rounding::kUp && value < 0);
  return std::copysign(stays ? format.largest : std::numeric_limits<double>::infinity(),
                       value);
}

std::uint16_t half_bits(double value) {
  return to_half(static_cast<float>(value)).bits;
}

namespace {

std::uint8_t small_bits(double value, Format format, int exponent_bits, int largest) {
  const unsigned sign = std::signbit(value) ? 0x80U : 0U;
  if (std::isnan(value))
    return 0x7f;
  const double magnitude = std::fabs(value);
  if (magnitude > format.largest)
    return static_cast<std::uint8_t>(sign | static_cast<unsigned>(largest));
  if (magnitude == 0)
    return static_cast<std::uint8_t>(sign);
  const int exponent = std::max(std::ilogb(magnitude), format.least_exponent);
  const auto mantissa =
      static_cast<unsigned>(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  // The leading one, if there is one, adds 1 to the exponent's field.
  const auto field = static_cast<unsigned>(exponent + bias - 1);
  return static_cast<std::uint8_t>(
      sign | ((field << static_cast<unsigned>(format.mantissa_bits)) + mantissa));
}

double small_value(std::uint8_t bits, Format format, int exponent_bits) {
  const unsigned magnitude = bits & 0x7fU;
  const auto width = static_cast<unsigned>(format.mantissa_bits);
  const auto field = static_cast<int>(magnitude >> width);
  const double mantissa = magnitude & ((1U << width) - 1U);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double value = field == 0
                           ? std::ldexp(mantissa, 1 - bias - format.mantissa_bits)
                           : std::ldexp(mantissa + std::ldexp(1, format.mantissa_bits),
                                        field - bias - format.mantissa_bits);
  return (bits & 0x80U) != 0 ? -value : value;
}

}  // namespace

std::uint8_t e4m3_bits(double value) {
  return small_bits(value, kE4m3Format, 4, 0x7e);
}
std::uint8_t e5m2_bits(double value) {
  return small_bits(value, kE5m2Format, 5, 0x7b);
}
double from_e4m3(std::uint8_t bits) {
  if ((bits & 0x7fU) == 0x7f)
    return std::numeric_limits<double>::quiet_NaN();
  return small_value(bits, kE4m3Format, 4);
}
double from_e5m2(std::uint8_t bits) {
  const unsigned magnitude = bits & 0x7fU;
  if (magnitude > 0x7c)
    return std::numeric_limits<double>::quiet_NaN();
  if (magnitude == 0x7c)
    return (bits & 0x80U) != 0 ? -std::numeric_limits<double>::infinity()
                               : std::numeric_limits<double>::infinity();
  return small_value(bits, kE5m2Format, 5);
}

// The error of the rounded sum is exact (Knuth's TwoSum), as the product is, which the
// fused operation gives. Boldo and Melquiond, "Emulation of a FMA and correctly rounded
// sums: proved algorithms using rounding to odd", 2008.
double fused_to_odd(double a, double b, double c) {
  const double result = std::fma(a, b, c);
  if (!std::isfinite(result))
    return result;
  const double product = a * b;  // exact for floats and smaller
  const double back = result - product;
  const double error = (product - (result - back)) + (c - back);
  const auto bits = std::bit_cast<std::uint64_t>(result);
  if (error == 0 || (bits & 1U) != 0)
    return result;
  return (error > 0) == (result > 0) ? std::bit_cast<double>(bits + 1)
                                     : std::bit_cast<double>(bits - 1);
}

}  // namespace kiln::ptx
