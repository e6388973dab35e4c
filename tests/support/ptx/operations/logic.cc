// PTX ISA, "Logic and Shift Instructions".

#include <algorithm>
#include <array>

#include "tests/support/ptx/operations/elementwise.h"

namespace kiln::ptx {
namespace {

using And = decltype([]<typename T>(T a, T b) -> T { return a & b; });
using Or = decltype([]<typename T>(T a, T b) -> T { return a | b; });
using Xor = decltype([]<typename T>(T a, T b) -> T { return a ^ b; });
using Not = decltype([]<typename T>(T a) -> T { return static_cast<T>(~a); });
using IsZero = decltype([]<typename T>(T a) -> T { return a == 0 ? 1 : 0; });
// Beyond the width a shift leaves zeros, or the sign.
using ShiftLeft = decltype([]<typename T>(T a, std::uint32_t by) -> T {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
});
struct ShiftRight {
  template <typename T>
  T operator()(T a, std::uint32_t by) const {
    const auto limit = static_cast<std::uint32_t>(8 * sizeof(T) - 1);
    return by > limit && std::is_unsigned_v<T>
               ? T{0}
               : static_cast<T>(a >> std::min(by, limit));
  }
};
/// shf: 32 of the 64 bits b:a.
template <bool kLeft, bool kClamps>
struct Funnel {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    const unsigned by = kClamps ? std::min(c, 32U) : c & 31U;
    const std::uint64_t both = std::uint64_t{b} << 32U | a;
    return static_cast<std::uint32_t>(kLeft ? both << by >> 32U : both >> by);
  }
};

template <typename F>
void of_predicates(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  lanes.set_predicate(operands[0],
                      F{}(lanes.predicate(operands[1]), lanes.predicate(operands[2])));
}
void not_predicate(Lanes& lanes, const Instruction& instruction) {
  lanes.set_predicate(instruction.operands[0],
                      ~lanes.predicate(instruction.operands[1]));
}

template <typename F>
void select_pair(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(type, {type, type});
  decoder.run_by(type == kPred ? Handler{&of_predicates<F>} : bits_handler<F, 2>(type));
}
template <typename F>
void select_one(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(type, {type});
  decoder.run_by(type == kPred ? Handler{&not_predicate} : bits_handler<F, 1>(type));
}

template <typename F, typename T>
constexpr Handler shift_of() {
  return &elementwise<F, T, T, std::uint32_t>;
}
void select_shift(Decoder& decoder) {
  const bool is_left = decoder.statement().opcode == "shl";
  const Type type = decoder.take_type();
  decoder.operands(type, {type, kU32});
  const bool is_signed = !is_left && type.kind == Kind::kSigned;
  const auto choose = [&](Handler left, Handler right, Handler signed_right) {
    decoder.made.run = is_left ? left : is_signed ? signed_right : right;
  };
  if (type.bits == 16)
    choose(shift_of<ShiftLeft, std::uint16_t>(), shift_of<ShiftRight, std::uint16_t>(),
           shift_of<ShiftRight, std::int16_t>());
  else if (type.bits == 64)
    choose(shift_of<ShiftLeft, std::uint64_t>(), shift_of<ShiftRight, std::uint64_t>(),
           shift_of<ShiftRight, std::int64_t>());
  else
    choose(shift_of<ShiftLeft, std::uint32_t>(), shift_of<ShiftRight, std::uint32_t>(),
           shift_of<ShiftRight, std::int32_t>());
}

void select_funnel(Decoder& decoder) {
  const bool is_left = decoder.take_one_of({"l", "r"}) == 0;
  const bool clamps = decoder.take_one_of({"clamp", "wrap"}) == 0;
  decoder.take_type();
  decoder.operands(kB32, {kB32, kB32, kU32});
  const auto of = [](auto funnel) {
    return elementwise_of<decltype(funnel), std::uint32_t, 3>();
  };
  if (is_left)
    decoder.made.run = clamps ? of(Funnel<true, true>{}) : of(Funnel<true, false>{});
  else
    decoder.made.run = clamps ? of(Funnel<false, true>{}) : of(Funnel<false, false>{});
}

// Bit by bit what the table of eight says.
void look_up(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  auto* const to = lanes.at<std::uint32_t>(operands[0]);
  const auto* const a = lanes.at<std::uint32_t>(operands[1]);
  const auto* const b = lanes.at<std::uint32_t>(operands[2]);
  const auto* const c = lanes.at<std::uint32_t>(operands[3]);
  const unsigned table = instruction.mode;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    std::uint32_t result = 0;
    for (unsigned row = 0; row < 8; ++row) {
      const std::uint32_t is_row = ((row & 4U) != 0 ? a[lane] : ~a[lane]) &
                                   ((row & 2U) != 0 ? b[lane] : ~b[lane]) &
                                   ((row & 1U) != 0 ? c[lane] : ~c[lane]);
      result |= (table >> row & 1U) != 0 ? is_row : 0;
    }
    to[lane] = result;
  });
}
void select_look_up(Decoder& decoder) {
  if (decoder.statement().modifiers.size() != 1)
    decoder.refuse("its form with a predicate is not run here");
  decoder.take_type();
  if (decoder.count() != 5)
    decoder.refuse("it has not five operands");
  decoder.made.operands = {decoder.destination(decoder.argument(0), kB32),
                           decoder.source(decoder.argument(1), kB32),
                           decoder.source(decoder.argument(2), kB32),
                           decoder.source(decoder.argument(3), kB32)};
  decoder.made.mode = static_cast<std::uint8_t>(decoder.integer(decoder.argument(4)));
  decoder.made.run = &look_up;
}

}  // namespace

std::span<const Operation> logic_operations() {
  static constexpr auto kAll = std::to_array<Operation>({
      {"and", &select_pair<And>},
      {"or", &select_pair<Or>},
      {"xor", &select_pair<Xor>},
      {"not", &select_one<Not>},
      {"cnot", &select_one<IsZero>},
      {"shl", &select_shift},
      {"shr", &select_shift},
      {"shf", &select_funnel},
      {"lop3", &select_look_up},
  });
  return kAll;
}

}  // namespace kiln::ptx
