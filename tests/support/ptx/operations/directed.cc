// PTX ISA, "Floating Point Instructions": those with .rz, .rm or .rp. Compiled with
// -frounding-math: the machine rounds as it is told.

#include "tests/support/ptx/operations/directed.h"

#include <cfenv>
#include <cmath>
#include <tuple>

#include "tests/support/ptx/lanes.h"
#include "tests/support/ptx/numbers.h"

namespace kiln::ptx {
namespace {

int machine_rounding(Rounding rounding) {
  switch (rounding) {
    case Rounding::kZero:
      return FE_TOWARDZERO;
    case Rounding::kDown:
      return FE_DOWNWARD;
    case Rounding::kUp:
      return FE_UPWARD;
    default:
      return FE_TONEAREST;
  }
}

// As in floating.cc, but compiled to be rounded otherwise. Each has as many arguments.
using Add = decltype([](auto a, auto b, auto) { return a + b; });
using Subtract = decltype([](auto a, auto b, auto) { return a - b; });
using Multiply = decltype([](auto a, auto b, auto) { return a * b; });
using Divide = decltype([](auto a, auto b, auto) { return a / b; });
using Fuse = decltype([](auto a, auto b, auto c) { return std::fma(a, b, c); });
using Reciprocal = decltype([](auto a, auto, auto) { return decltype(a){1} / a; });
using Root = decltype([](auto a, auto, auto) { return std::sqrt(a); });

template <typename T, typename F>
void directed(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  T* const to = lanes.at<T>(operands[0]);
  const auto source = [&](std::size_t index) {
    return lanes.at<T>(operands[std::min(index, operands.size() - 1)]);
  };
  const T* const a = source(1);
  const T* const b = source(2);
  const T* const c = source(3);
  const auto flush = [&](T value) {
    return instruction.flushes ? flushed(value) : value;
  };
  const int before = std::fegetround();
  std::fesetround(machine_rounding(instruction.rounding));
  for_each_lane(lanes.mask, [&](unsigned lane) {
    const T computed = F{}(flush(a[lane]), flush(b[lane]), flush(c[lane]));
    const T result = flush(
        std::is_same_v<F, Divide> ? quotient_with_nan(computed, a[lane], b[lane])
        : std::is_same_v<F, Fuse> ? fused_with_nan(computed, a[lane], b[lane], c[lane])
                                  : with_nan(computed, a[lane], b[lane]));
    to[lane] = instruction.saturates ? saturated(result) : result;
  });
  std::fesetround(before);
}

template <typename F>
Handler of_type(Type type) {
  if (type.kind != Kind::kFloat || type.count != 1 || type.bits < 32)
    return nullptr;
  return type.bits == 64 ? &directed<double, F> : &directed<float, F>;
}

}  // namespace

Handler directed_handler(std::string_view opcode, Type type) {
  if (opcode == "add")
    return of_type<Add>(type);
  if (opcode == "sub")
    return of_type<Subtract>(type);
  if (opcode == "mul")
    return of_type<Multiply>(type);
  if (opcode == "div")
    return of_type<Divide>(type);
  if (opcode == "fma" || opcode == "mad")
    return of_type<Fuse>(type);
  return opcode == "rcp" ? of_type<Reciprocal>(type) : of_type<Root>(type);
}

}  // namespace kiln::ptx
