// Compiled with -frounding-math: the machine rounds as it is told.

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

template <typename T>
T compute(std::uint8_t operation, T a, T b, T c) {
  switch (operation) {
    case 0:
      return a + b;
    case 1:
      return a - b;
    case 2:
      return a * b;
    case 3:
      return a / b;
    case 4:
      return std::fma(a, b, c);
    case 5:
      return T{1} / a;
    default:
      return std::sqrt(a);
  }
}

template <typename T, std::uint8_t kOperation>
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
    const T result = flush(
        with_nan(compute(kOperation, flush(a[lane]), flush(b[lane]), flush(c[lane])),
                 a[lane], b[lane], c[lane]));
    to[lane] = instruction.saturates ? saturated(result) : result;
  });
  std::fesetround(before);
}

template <std::uint8_t kOperation>
Handler of_type(Type type) {
  if (type.kind != Kind::kFloat || type.count != 1 || type.bits < 32)
    return nullptr;
  return type.bits == 64 ? &directed<double, kOperation> : &directed<float, kOperation>;
}

}  // namespace

Handler directed_handler(std::string_view opcode, Type type) {
  if (opcode == "add")
    return of_type<0>(type);
  if (opcode == "sub")
    return of_type<1>(type);
  if (opcode == "mul")
    return of_type<2>(type);
  if (opcode == "div")
    return of_type<3>(type);
  if (opcode == "fma" || opcode == "mad")
    return of_type<4>(type);
  return opcode == "rcp" ? of_type<5>(type) : of_type<6>(type);
}

}  // namespace kiln::ptx
