// PTX ISA, "Comparison and Selection Instructions" and "Half Precision Comparison
// Instructions".

#include <array>
#include <functional>

#include "tests/support/ptx/numbers.h"
#include "tests/support/ptx/operations/elementwise.h"

namespace kiln::ptx {
namespace {

/// In the order of the handlers of by_comparison().
enum Comparison : std::uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kNumber,
  kNan
};
using IsNumber = decltype([](auto, auto) { return true; });  // where neither is a NaN
using IsNan = decltype([](auto, auto) { return false; });

struct Named {
  std::string_view name;
  Comparison comparison;
  bool of_nan;  // what it says of a NaN
};
constexpr auto kNames = std::to_array<Named>({
    {"eq", kEqual, false},
    {"ne", kNotEqual, false},
    {"lt", kLess, false},
    {"le", kLessOrEqual, false},
    {"gt", kGreater, false},
    {"ge", kGreaterOrEqual, false},
    {"lo", kLess, false},
    {"ls", kLessOrEqual, false},
    {"hi", kGreater, false},
    {"hs", kGreaterOrEqual, false},
    {"equ", kEqual, true},
    {"neu", kNotEqual, true},
    {"ltu", kLess, true},
    {"leu", kLessOrEqual, true},
    {"gtu", kGreater, true},
    {"geu", kGreaterOrEqual, true},
    {"num", kNumber, false},
    {"nan", kNan, true},
});

template <typename T>
T comparable(T value, bool flushes) {
  if constexpr (std::is_same_v<T, float>)
    return flushes ? flushed(value) : value;
  else
    return value;
}
float comparable(Half value, bool flushes) {
  return to_float(flushes ? flushed(value) : value);
}
float comparable(Bfloat value, bool) {
  return to_float(value);
}

/// The answers of the lanes of the mask, `kWidth` elements each; of the element `part`.
template <typename Compare, typename T, unsigned kWidth>
std::uint32_t answers(const Lanes& lanes, const Instruction& instruction,
                      unsigned part) {
  const std::size_t first = instruction.operands.size() - 3;
  const T* const a = lanes.at<T>(instruction.operands[first]);
  const T* const b = lanes.at<T>(instruction.operands[first + 1]);
  const bool of_nan = instruction.is_other;
  std::uint32_t result = 0;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    const auto left = comparable(a[kWidth * lane + part], instruction.flushes);
    const auto right = comparable(b[kWidth * lane + part], instruction.flushes);
    bool answer = Compare{}(left, right);
    if constexpr (std::is_floating_point_v<decltype(left)>)
      answer = left != left || right != right ? of_nan : answer;
    result |= std::uint32_t{answer} << lane;
  });
  return result;
}

/// and, or, xor with a further predicate.
std::uint32_t combined(const Instruction& instruction, std::uint32_t answer,
                       std::uint32_t with) {
  switch (instruction.mode) {
    case 1:
      return answer & with;
    case 2:
      return answer | with;
    case 3:
      return answer ^ with;
    default:
      return answer;
  }
}
std::uint32_t further(const Lanes& lanes, const Instruction& instruction) {
  return instruction.mode == 0 ? 0 : lanes.predicate(instruction.operands.back());
}

// Operands: p, q, a, b, c. q is the opposite; of a packed type, the second element.
template <typename Compare, typename T, unsigned kWidth>
void set_predicates(Lanes& lanes, const Instruction& instruction) {
  const std::uint32_t with = further(lanes, instruction);
  const std::uint32_t answer = answers<Compare, T, kWidth>(lanes, instruction, 0);
  const std::uint32_t second =
      kWidth == 2 ? answers<Compare, T, kWidth>(lanes, instruction, kWidth - 1)
                  : ~answer;
  lanes.set_predicate(instruction.operands[0], combined(instruction, answer, with));
  lanes.set_predicate(instruction.operands[1], combined(instruction, second, with));
}

// Operands: d, a, b, c. offset: what is true.
template <typename Compare, typename T, unsigned kWidth>
void set_value(Lanes& lanes, const Instruction& instruction) {
  const std::uint32_t with = further(lanes, instruction);
  const Operand& to = instruction.operands[0];
  for (unsigned part = 0; part < kWidth; ++part) {
    const std::uint32_t answer = combined(
        instruction, answers<Compare, T, kWidth>(lanes, instruction, part), with);
    for_each_lane(lanes.mask, [&](unsigned lane) {
      const bool is_true = (answer >> lane & 1U) != 0;
      const std::int64_t value = is_true ? instruction.offset : 0;
      if (to.bytes == 2 * kWidth)
        lanes.at<std::uint16_t>(to)[kWidth * lane + part] =
            static_cast<std::uint16_t>(value);
      else
        lanes.at<std::uint32_t>(to)[lane] = static_cast<std::uint32_t>(value);
    });
  }
}

template <typename Compare, typename T, unsigned kWidth>
struct Predicates {
  static constexpr Handler kHandler = &set_predicates<Compare, T, kWidth>;
};
template <typename Compare, typename T, unsigned kWidth>
struct Value {
  static constexpr Handler kHandler = &set_value<Compare, T, kWidth>;
};

template <typename T, unsigned kWidth,
          template <typename, typename, unsigned> typename Set>
Handler by_comparison(Comparison comparison) {
  static constexpr std::array kHandlers{Set<std::equal_to<>, T, kWidth>::kHandler,
                                        Set<std::not_equal_to<>, T, kWidth>::kHandler,
                                        Set<std::less<>, T, kWidth>::kHandler,
                                        Set<std::less_equal<>, T, kWidth>::kHandler,
                                        Set<std::greater<>, T, kWidth>::kHandler,
                                        Set<std::greater_equal<>, T, kWidth>::kHandler,
                                        Set<IsNumber, T, kWidth>::kHandler,
                                        Set<IsNan, T, kWidth>::kHandler};
  return kHandlers[comparison];
}

template <template <typename, typename, unsigned> typename Set>
Handler by_type(Type type, Comparison comparison) {
  const bool is_signed = type.kind == Kind::kSigned;
  if (type.kind == Kind::kBfloat)
    return type.count == 2 ? by_comparison<Bfloat, 2, Set>(comparison)
                           : by_comparison<Bfloat, 1, Set>(comparison);
  if (type.kind == Kind::kFloat && type.bits == 16)
    return type.count == 2 ? by_comparison<Half, 2, Set>(comparison)
                           : by_comparison<Half, 1, Set>(comparison);
  if (type.kind == Kind::kFloat)
    return type.bits == 64 ? by_comparison<double, 1, Set>(comparison)
                           : by_comparison<float, 1, Set>(comparison);
  switch (type.bits) {
    case 16:
      return is_signed ? by_comparison<std::int16_t, 1, Set>(comparison)
                       : by_comparison<std::uint16_t, 1, Set>(comparison);
    case 32:
      return is_signed ? by_comparison<std::int32_t, 1, Set>(comparison)
                       : by_comparison<std::uint32_t, 1, Set>(comparison);
    case 64:
      return is_signed ? by_comparison<std::int64_t, 1, Set>(comparison)
                       : by_comparison<std::uint64_t, 1, Set>(comparison);
    default:
      return nullptr;
  }
}

const Named& take_comparison(Decoder& decoder) {
  for (const Named& each : kNames) {
    if (decoder.take(each.name))
      return each;
  }
  decoder.refuse("it has no comparison");
}

// a, b, and c where there is a further predicate.
void add_compared(Decoder& decoder, Type type, std::size_t first) {
  auto& operands = decoder.made.operands;
  operands.push_back(decoder.source(decoder.argument(first), type));
  operands.push_back(decoder.source(decoder.argument(first + 1), type));
  operands.push_back(decoder.made.mode == 0
                         ? Operand{}
                         : decoder.source(decoder.argument(first + 2), kPred));
}

Named take_modifiers(Decoder& decoder) {
  const Named named = take_comparison(decoder);
  decoder.made.is_other = named.of_nan;
  const auto with = decoder.take_one({"and", "or", "xor"});
  decoder.made.mode = with ? static_cast<std::uint8_t>(*with + 1) : std::uint8_t{0};
  decoder.made.flushes = decoder.take("ftz");
  return named;
}

void select_predicates(Decoder& decoder) {
  const Named named = take_modifiers(decoder);
  const Type type = decoder.take_type();
  const auto& to = decoder.argument(0);
  decoder.made.operands = {decoder.destination(to, kPred),
                           decoder.second_destination(to)};
  add_compared(decoder, type, 1);
  decoder.run_by(by_type<Predicates>(type, named.comparison));
}

void select_value(Decoder& decoder) {
  const Named named = take_modifiers(decoder);
  const Type to = decoder.take_type();
  const Type type = decoder.take_type();
  decoder.made.operands = {decoder.destination(decoder.argument(0), to)};
  add_compared(decoder, type, 1);
  // Of an integer all ones, of a float 1.
  decoder.made.offset = to.is_integer()            ? -1
                        : to.kind == Kind::kBfloat ? 0x3f80
                        : to.bits == 16            ? 0x3c00
                                                   : 0x3f800000;
  decoder.run_by(to.bits == 64 ? nullptr : by_type<Value>(type, named.comparison));
}

template <typename T>
void choose(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  T* const to = lanes.at<T>(operands[0]);
  const T* const a = lanes.at<T>(operands[1]);
  const T* const b = lanes.at<T>(operands[2]);
  const std::uint32_t which = lanes.predicate(operands[3]);
  for_each_lane(lanes.mask, [&](unsigned lane) {
    to[lane] = (which >> lane & 1U) != 0 ? a[lane] : b[lane];
  });
}
void select_choice(Decoder& decoder) {
  const Type type = bits_of(decoder.take_type());
  decoder.operands(type, {type, type, kPred});
  decoder.made.run = type.bits == 16   ? &choose<std::uint16_t>
                     : type.bits == 64 ? &choose<std::uint64_t>
                                       : &choose<std::uint32_t>;
}

// slct: by the sign of c, of which -0 is not negative, nor what is flushed to it.
template <typename T, typename C>
void choose_by_sign(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  T* const to = lanes.at<T>(operands[0]);
  const T* const a = lanes.at<T>(operands[1]);
  const T* const b = lanes.at<T>(operands[2]);
  const C* const c = lanes.at<C>(operands[3]);
  for_each_lane(lanes.mask, [&](unsigned lane) {
    C by = c[lane];
    if constexpr (std::is_same_v<C, float>)
      by = instruction.flushes ? flushed(by) : by;
    to[lane] = by >= C{0} ? a[lane] : b[lane];
  });
}
void select_choice_by_sign(Decoder& decoder) {
  decoder.made.flushes = decoder.take("ftz");
  const Type type = bits_of(decoder.take_type());
  const Type by = decoder.take_type();
  decoder.operands(type, {type, type, by});
  const bool is_float = by.kind == Kind::kFloat;
  if (type.bits == 64)
    decoder.made.run = is_float ? &choose_by_sign<std::uint64_t, float>
                                : &choose_by_sign<std::uint64_t, std::int32_t>;
  else if (type.bits == 16)
    decoder.made.run = is_float ? &choose_by_sign<std::uint16_t, float>
                                : &choose_by_sign<std::uint16_t, std::int32_t>;
  else
    decoder.made.run = is_float ? &choose_by_sign<std::uint32_t, float>
                                : &choose_by_sign<std::uint32_t, std::int32_t>;
}

}  // namespace

std::span<const Operation> comparison_operations() {
  static constexpr auto kAll = std::to_array<Operation>({
      {"setp", &select_predicates},
      {"set", &select_value},
      {"selp", &select_choice},
      {"slct", &select_choice_by_sign},
  });
  return kAll;
}

}  // namespace kiln::ptx
