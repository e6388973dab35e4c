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

enum Directed : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFuse,
  kReciprocal,
  kRoot
};
template <typename T>
T compute(Directed operation, T a, T b, T c) {
  switch (operation) {
    case kAdd:
      return a + b;
    case kSubtract:
      return a - b;
    case kMultiply:
      return a * b;
    case kDivide:
      return a / b;
    case kFuse:
      return std::fma(a, b, c);
    case kReciprocal:
      return T{1} / a;
    default:
      return std::sqrt(a);
  }
}

template <typename T, Directed kOperation>
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
    const T computed =
        compute(kOperation, flush(a[lane]), flush(b[lane]), flush(c[lane]));
    const T result = flush(
        kOperation == kDivide ? quotient_with_nan(computed, a[lane], b[lane])
        : kOperation == kFuse ? fused_with_nan(computed, a[lane], b[lane], c[lane])
                              : with_nan(computed, a[lane], b[lane]));
    to[lane] = instruction.saturates ? saturated(result) : result;
  });
  std::fesetround(before);
}

template <Directed kOperation>
Handler of_type(Type type) {
  if (type.kind != Kind::kFloat || type.count != 1 || type.bits < 32)
    return nullptr;
  return type.bits == 64 ? &directed<double, kOperation> : &directed<float, kOperation>;
}

}  // namespace

Handler directed_handler(std::string_view opcode, Type type) {
  if (opcode == "add")
    return of_type<kAdd>(type);
  if (opcode == "sub")
    return of_type<kSubtract>(type);
  if (opcode == "mul")
    return of_type<kMultiply>(type);
  if (opcode == "div")
    return of_type<kDivide>(type);
  if (opcode == "fma" || opcode == "mad")
    return of_type<kFuse>(type);
  return opcode == "rcp" ? of_type<kReciprocal>(type) : of_type<kRoot>(type);
}

}  // namespace kiln::ptx
