#include "tests/support/kernels/conversions.h"

#include <bit>
#include <cmath>
#include <limits>

namespace kiln_cpu {

float f16_to_float(unsigned bits) {
  const unsigned exponent = bits >> 10 & 0x1fU;
  const unsigned fraction = bits & 0x3ffU;
  float magnitude = 0;
  if (exponent == 0x1f) {
    magnitude = fraction == 0 ? std::numeric_limits<float>::infinity()
                              : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction + 0x400U),
                           static_cast<int>(exponent) - 25);
  }
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

unsigned float_to_f16(float value) {
  const unsigned sign = std::bit_cast<unsigned>(value) >> 16 & 0x8000U;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) {
    return 0x7fff;  // what cvt gives
  }
  if (magnitude >= 65520.0F) {
    return sign | 0x7c00U;  // half way from the largest to the next power of two
  }
  // In units of the last place, which is 2^-24 below 2^-14; nearbyint rounds to even.
  const int exponent = magnitude < 0x1p-14F ? -14 : std::ilogb(magnitude);
  const auto units =
      static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return sign | (units + (static_cast<unsigned>(exponent + 14) << 10));
}

}  // namespace kiln_cpu
