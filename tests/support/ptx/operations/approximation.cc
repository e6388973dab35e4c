// PTX ISA, "Floating Point Instructions": rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh
// and div with .approx or .full; "Half Precision Floating Point Instructions": ex2,
// tanh.

#include "tests/support/ptx/operations/approximation.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/support/ptx/numbers.h"
#include "tests/support/ptx/operations/elementwise.h"

namespace kiln::ptx {
namespace {

// What the ISA permits as the error of each approximation.
struct Approximation {
  std::string_view opcode;
  double (*function)(double);
  int ulps;         // relative
  double absolute;  // the greatest error, where it is no relative one
};
constexpr auto kApproximations = std::to_array<Approximation>({
    {"ex2", [](double x) { return std::exp2(x); }, 2, 0},
    {"lg2", [](double x) { return std::log2(x); }, 1, 0x1p-22},
    {"rcp", [](double x) { return 1 / x; }, 1, 0},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 2, 0},
    {"sqrt", [](double x) { return std::sqrt(x); }, 1, 0},
    {"sin", [](double x) { return std::sin(x); }, 0, 0x1p-21},
    {"cos", [](double x) { return std::cos(x); }, 0, 0x1p-21},
    {"tanh", [](double x) { return std::tanh(x); }, 1 << 12, 0},
});

float approximated(const Approximation& by, float value, Noise* noise) {
  const double exact = by.function(value);
  auto result = static_cast<float>(exact);
  if (noise == nullptr || !std::isfinite(result) || result == 0)
    return canonical(result);
  if (by.ulps != 0)
    result = noise->around(result, by.ulps);
  if (by.absolute != 0)
    result += static_cast<float>(by.absolute *
                                 (static_cast<double>(noise->below(2049)) / 1024 - 1));
  return result;
}

template <typename T>
void approximate(Lanes& lanes, const Instruction& instruction) {
  const Approximation& by = kApproximations[instruction.mode];
  T* const to = lanes.at<T>(instruction.operands[0]);
  const T* const from = lanes.at<T>(instruction.operands[1]);
  const unsigned width = instruction.is_other ? 2 : 1;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    for (unsigned at = width * lane; at < width * (lane + 1); ++at) {
      const float value = to_float(instruction.flushes ? flushed(from[at]) : from[at]);
      const T result = from_float<T>(
          approximated(by, value, std::is_same_v<T, float> ? lanes.noise : nullptr));
      to[at] = instruction.flushes ? flushed(result) : result;
    }
  });
}
// rcp and rsqrt of doubles: the high 32 bits alone count.
void approximate_doubles(Lanes& lanes, const Instruction& instruction) {
  const Approximation& by = kApproximations[instruction.mode];
  double* const to = lanes.at<double>(instruction.operands[0]);
  const double* const from = lanes.at<double>(instruction.operands[1]);
  const auto high = [](double value) {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) &
                                 0xffffffff00000000ULL);
  };
  for_each_lane(lanes.mask,
                [&](unsigned lane) { to[lane] = high(by.function(high(from[lane]))); });
}

}  // namespace

void choose_approximation(Instruction& made, std::string_view opcode, Type type) {
  const auto by = std::ranges::find(kApproximations, opcode, &Approximation::opcode);
  made.mode = static_cast<std::uint8_t>(by - kApproximations.begin());
  made.is_other = type.count == 2;
  if (type.bits == 64)
    made.run = &approximate_doubles;
  else if (type.kind == Kind::kBfloat)
    made.run = &approximate<Bfloat>;
  else if (type.bits == 16)
    made.run = &approximate<Half>;
  else
    made.run = &approximate<float>;
}

// 2 units in the last place.
void divide_approximately(Lanes& lanes, const Instruction& instruction) {
  float* const to = lanes.at<float>(instruction.operands[0]);
  const float* const a = lanes.at<float>(instruction.operands[1]);
  const float* const b = lanes.at<float>(instruction.operands[2]);
  const bool flushes = instruction.flushes;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    float result = flushes ? flushed(a[lane]) / flushed(b[lane]) : a[lane] / b[lane];
    if (lanes.noise != nullptr)
      result = lanes.noise->around(result, 2);
    to[lane] = canonical(flushes ? flushed(result) : result);
  });
}
}  // namespace kiln::ptx
