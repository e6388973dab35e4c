// PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions"
// and "Mixed Precision Floating Point Instructions"; and which form of add, mul and
// their like a statement has.

#include <array>
#include <cmath>

#include "tests/support/ptx/numbers.h"
#include "tests/support/ptx/operations/approximation.h"
#include "tests/support/ptx/operations/directed.h"
#include "tests/support/ptx/operations/elementwise.h"
#include "tests/support/ptx/operations/integer.h"

namespace kiln::ptx {
namespace {

using Add = decltype([]<typename T>(T a, T b) -> T { return a + b; });
using Subtract = decltype([]<typename T>(T a, T b) -> T { return a - b; });
using Multiply = decltype([]<typename T>(T a, T b) -> T { return a * b; });
using Divide = decltype([]<typename T>(T a, T b) -> T { return a / b; });
using Fuse = decltype([]<typename T>(T a, T b, T c) -> T { return std::fma(a, b, c); });
using Root = decltype([]<typename T>(T a) -> T { return std::sqrt(a); });
using Reciprocal = decltype([]<typename T>(T a) -> T { return T{1} / a; });

/// F of floats, doubles, or 16 bits by way of floats: with 24 bits for 11 or 8 a sum,
/// product, quotient or root rounded twice is right.
template <typename F, bool kFlushes, bool kSaturates>
struct Rounded {
  template <typename T, typename... More>
  T operator()(T a, More... more) const {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
      return finish(nan_chosen(F{}(input(a), input(more)...), a, more...));
    else if constexpr (std::is_same_v<F, Fuse>)
      return finish(from_float<T>(
          to_float_odd(fused_to_odd(to_float(input(a)), to_float(input(more))...))));
    else
      return finish(from_float<T>(F{}(to_float(input(a)), to_float(input(more))...)));
  }

 private:
  template <typename T, typename... More>
  static T nan_chosen(T result, T a, More... more) {
    if constexpr (std::is_same_v<F, Divide>)
      return quotient_with_nan(result, a, more...);
    else if constexpr (std::is_same_v<F, Fuse>)
      return fused_with_nan(result, a, more...);
    else
      return with_nan(result, a, more...);
  }
  template <typename T>
  static T input(T value) {
    if constexpr (kFlushes)
      return flushed(value);
    else
      return value;
  }
  template <typename T>
  static T finish(T value) {
    const T result = input(value);
    if constexpr (!kSaturates)
      return result;
    else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
      return saturated(result);
    else
      return from_float<T>(saturated(to_float(result)));
  }
};

// Of two NaNs a NaN, of one NaN the number; -0 lies below 0.
template <bool kGreatest, bool kKeepsNan>
struct Extreme {
  template <typename T>
  T operator()(T a, T b) const {
    const bool is_first_nan = a != a;
    const bool is_second_nan = b != b;
    if (is_first_nan || is_second_nan)
      return kKeepsNan || (is_first_nan && is_second_nan)
                 ? std::numeric_limits<T>::quiet_NaN()
             : is_first_nan ? b
                            : a;
    if (a == b)
      return std::signbit(a) == kGreatest ? b : a;
    return (a < b) == kGreatest ? b : a;
  }
};
template <typename F>
struct OfMagnitudes {
  template <typename T>
  T operator()(T a, T b) const {
    const T result = F{}(std::fabs(a), std::fabs(b));
    return std::signbit(a) != std::signbit(b) ? -std::fabs(result) : result;
  }
};

// Of a NaN: the canonical one, and of doubles the same with its sign.
struct Absolute {
  float operator()(float a) const { return canonical(std::fabs(a)); }
  double operator()(double a) const { return a != a ? quieted(a) : std::fabs(a); }
  template <typename T>
  T operator()(T a) const {
    const float value = to_float(a);
    return {static_cast<std::uint16_t>(value != value ? kNan16 : a.bits & 0x7fffU)};
  }
};
struct Negate {
  float operator()(float a) const { return canonical(-a); }
  double operator()(double a) const { return a != a ? quieted(a) : -a; }
  template <typename T>
  T operator()(T a) const {
    const float value = to_float(a);
    return {static_cast<std::uint16_t>(value != value ? kNan16 : a.bits ^ 0x8000U)};
  }
};
template <typename F>
struct Flushed {
  template <typename T>
  T operator()(T a) const {
    return flushed(F{}(a));
  }
};
using CopySign = decltype([]<typename T>(T sign, T magnitude) -> T {
  return std::copysign(magnitude, sign);
});
template <typename F>
struct AtLeastZero {
  template <typename T, typename... More>
  T operator()(T a, More... more) const {
    const T result = F{}(a, more...);
    if constexpr (std::is_same_v<T, double>)
      return result != result || result > 0 ? result : 0;
    else
      return to_float(result) != to_float(result) || to_float(result) > 0
                 ? result
                 : from_float<T>(0);
  }
};

/// By type, for a functor of any of them.
template <typename F, std::size_t kSources>
Handler float_handler(Type type) {
  if (type.kind == Kind::kBfloat)
    return type.count == 2 ? packed_of<F, Bfloat, kSources>()
                           : elementwise_of<F, Bfloat, kSources>();
  if (type.kind != Kind::kFloat)
    return nullptr;
  if (type.bits == 16)
    return type.count == 2 ? packed_of<F, ptx::Half, kSources>()
                           : elementwise_of<F, ptx::Half, kSources>();
  if (type.bits == 64)
    return elementwise_of<F, double, kSources>();
  return type.count == 2 ? packed_of<F, float, kSources>()
                         : elementwise_of<F, float, kSources>();
}

template <typename F, std::size_t kSources>
Handler rounded_handler(const Instruction& made, Type type) {
  if (made.flushes)
    return made.saturates ? float_handler<Rounded<F, true, true>, kSources>(type)
                          : float_handler<Rounded<F, true, false>, kSources>(type);
  return made.saturates ? float_handler<Rounded<F, false, true>, kSources>(type)
                        : float_handler<Rounded<F, false, false>, kSources>(type);
}

// The sum and product of most kernels, by the machine's own instruction where it has
// one; std::fma() is a call for each lane.
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void fuse_floats(Lanes& lanes,
                                                     const Instruction& instruction) {
  float* const to = lanes.at<float>(instruction.operands[0]);
  const float* const a = lanes.at<float>(instruction.operands[1]);
  const float* const b = lanes.at<float>(instruction.operands[2]);
  const float* const c = lanes.at<float>(instruction.operands[3]);
  const float nan = std::bit_cast<float>(kNan32);
  if (lanes.mask == kAllLanes) {
    KILN_LANES_SIDE_BY_SIDE
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const float sum = __builtin_fmaf(a[lane], b[lane], c[lane]);
      to[lane] = sum != sum ? nan : sum;
    }
    return;
  }
  for (std::uint32_t left = lanes.mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(left));
    const float sum = __builtin_fmaf(a[lane], b[lane], c[lane]);
    to[lane] = sum != sum ? nan : sum;
  }
}
bool has_fused_instruction() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}
#else
constexpr Handler fuse_floats = nullptr;
bool has_fused_instruction() {
  return false;
}
#endif

void select_float(Decoder& decoder, Type type) {
  Instruction& made = decoder.made;
  const std::string_view opcode = decoder.statement().opcode;
  const bool is_fused = opcode == "fma" || opcode == "mad";
  if (is_fused)
    decoder.operands(type, {type, type, type});
  else
    decoder.operands(type, {type, type});
  if (made.rounding != Rounding::kNearest) {
    decoder.run_by(directed_handler(opcode, type));
  } else if (is_fused) {
    const bool is_plain = type.is_float(32) && !made.flushes && !made.saturates;
    decoder.run_by(
        is_plain && has_fused_instruction() ? Handler{fuse_floats}
        : made.is_other && made.flushes
            ? float_handler<AtLeastZero<Rounded<Fuse, true, false>>, 3>(type)
        : made.is_other
            ? float_handler<AtLeastZero<Rounded<Fuse, false, false>>, 3>(type)
            : rounded_handler<Fuse, 3>(made, type));
  } else if (opcode == "add") {
    decoder.run_by(rounded_handler<Add, 2>(made, type));
  } else if (opcode == "sub") {
    decoder.run_by(rounded_handler<Subtract, 2>(made, type));
  } else if (opcode == "mul") {
    decoder.run_by(rounded_handler<Multiply, 2>(made, type));
  } else {
    decoder.run_by(rounded_handler<Divide, 2>(made, type));
  }
}

template <bool kGreatest, bool kKeepsNan>
Handler extreme_handler(const Instruction& made, Type type, bool of_magnitudes) {
  using F = Extreme<kGreatest, kKeepsNan>;
  return of_magnitudes ? rounded_handler<OfMagnitudes<F>, 2>(made, type)
                       : rounded_handler<F, 2>(made, type);
}
template <bool kGreatest>
void select_extreme(Decoder& decoder, Type type) {
  decoder.operands(type, {type, type});
  const Instruction& made = decoder.made;
  const bool of_magnitudes = (made.mode & 2U) != 0;
  decoder.run_by((made.mode & 1U) != 0
                     ? extreme_handler<kGreatest, true>(made, type, of_magnitudes)
                     : extreme_handler<kGreatest, false>(made, type, of_magnitudes));
}

/// The last modifier is the type in every form.
Type type_of(const syntax::Statement& statement) {
  const auto type = statement.modifiers.empty()
                        ? std::nullopt
                        : type_named(statement.modifiers.back());
  if (!type)
    Decoder::refuse("no type ends it");
  return *type;
}

void select_arithmetic(Decoder& decoder) {
  const auto& statement = decoder.statement();
  const std::string_view opcode = statement.opcode;
  const Type type = type_of(statement);
  Instruction& made = decoder.made;
  const bool is_extreme = opcode == "min" || opcode == "max";
  const auto refuse_unless = [](bool is_known) {
    if (!is_known)
      Decoder::refuse("this type is not one of the instruction's");
    return true;
  };
  if (type.is_integer()) {
    for (const std::string_view modifier : statement.modifiers) {
      if (modifier == "cc") {
        select_integer_with_carry(decoder);
        return;
      }
    }
    made.saturates = decoder.take("sat") && refuse_unless(type == kS32);
    made.is_other =
        is_extreme && decoder.take("relu") && refuse_unless(type.kind == Kind::kSigned);
    const auto part = opcode == "mul" || opcode == "mad"
                          ? decoder.take_one({"lo", "hi", "wide"})
                          : std::nullopt;
    decoder.take_type();
    if (opcode == "mul" || opcode == "mad")
      select_product(decoder, type, static_cast<Part>(part.value_or(0)));
    else
      select_integer(decoder, type);
    return;
  }
  made.rounding = decoder.take_rounding();
  made.flushes = decoder.take("ftz");
  if (is_extreme) {
    const bool keeps_nan = decoder.take("NaN");
    const bool of_magnitudes = decoder.take("xorsign") && decoder.take("abs");
    made.mode =
        static_cast<std::uint8_t>((keeps_nan ? 1 : 0) | (of_magnitudes ? 2 : 0));
  } else {
    made.saturates = opcode != "div" && decoder.take("sat");
    made.is_other = opcode == "fma" && decoder.take("relu");
  }
  decoder.take_type();
  if (decoder.has_type())
    decoder.refuse("sums of mixed types are not run here");
  if (opcode == "min")
    select_extreme<false>(decoder, type);
  else if (opcode == "max")
    select_extreme<true>(decoder, type);
  else
    select_float(decoder, type);
}

template <typename F>
void select_by_bits(Decoder& decoder) {
  const Type type = type_of(decoder.statement());
  decoder.made.flushes = decoder.take("ftz");
  decoder.take_type();
  if (type.is_integer()) {
    select_integer(decoder, type);
    return;
  }
  decoder.operands(type, {type});
  decoder.run_by(decoder.made.flushes ? float_handler<Flushed<F>, 1>(type)
                                      : float_handler<F, 1>(type));
}

void select_copysign(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(type, {type, type});
  decoder.made.run = type.bits == 64 ? elementwise_of<CopySign, double, 2>()
                                     : elementwise_of<CopySign, float, 2>();
}

void select_approximation(Decoder& decoder) {
  const std::string_view opcode = decoder.statement().opcode;
  Instruction& made = decoder.made;
  const Type type = type_of(decoder.statement());
  const bool is_approximate = decoder.take("approx");
  made.rounding = decoder.take_rounding();
  made.flushes = decoder.take("ftz");
  decoder.take_type();
  decoder.operands(type, {type});
  if (!is_approximate && opcode != "rcp" && opcode != "sqrt")
    decoder.refuse("it is not .approx");
  if (is_approximate) {
    choose_approximation(made, opcode, type);
  } else if (made.rounding != Rounding::kNearest) {  // rcp, sqrt
    decoder.run_by(directed_handler(opcode, type));
  } else {
    decoder.run_by(opcode == "rcp" ? rounded_handler<Reciprocal, 1>(made, type)
                                   : rounded_handler<Root, 1>(made, type));
  }
}

void select_division(Decoder& decoder) {
  const bool is_approximate = decoder.take("approx") || decoder.take("full");
  if (!is_approximate) {
    select_arithmetic(decoder);
    return;
  }
  decoder.made.flushes = decoder.take("ftz");
  const Type type = decoder.take_type();
  decoder.operands(type, {type, type});
  decoder.made.run = &divide_approximately;
}

// testp: a property of a number.
template <typename T>
void test_number(Lanes& lanes, const Instruction& instruction) {
  const T* const from = lanes.at<T>(instruction.operands[1]);
  std::uint32_t result = 0;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    const int kind = std::fpclassify(from[lane]);
    const bool answers[]{kind != FP_INFINITE && kind != FP_NAN,
                         kind == FP_INFINITE,
                         kind != FP_NAN,
                         kind == FP_NAN,
                         kind == FP_NORMAL || kind == FP_ZERO,
                         kind == FP_SUBNORMAL};
    result |= std::uint32_t{answers[instruction.mode]} << lane;
  });
  lanes.set_predicate(instruction.operands[0], result);
}
void select_test(Decoder& decoder) {
  const auto which = decoder.take_one(
      {"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  decoder.made.mode = static_cast<std::uint8_t>(which.value_or(0));
  const Type type = decoder.take_type();
  decoder.operands(kPred, {type});
  decoder.made.run = type.bits == 64 ? &test_number<double> : &test_number<float>;
}

}  // namespace

std::span<const Operation> float_operations() {
  static constexpr auto kAll = std::to_array<Operation>({
      {"add", &select_arithmetic},        {"sub", &select_arithmetic},
      {"mul", &select_arithmetic},        {"mad", &select_arithmetic},
      {"fma", &select_arithmetic},        {"div", &select_division},
      {"min", &select_arithmetic},        {"max", &select_arithmetic},
      {"abs", &select_by_bits<Absolute>}, {"neg", &select_by_bits<Negate>},
      {"copysign", &select_copysign},     {"testp", &select_test},
      {"rcp", &select_approximation},     {"sqrt", &select_approximation},
      {"rsqrt", &select_approximation},   {"ex2", &select_approximation},
      {"lg2", &select_approximation},     {"sin", &select_approximation},
      {"cos", &select_approximation},     {"tanh", &select_approximation},
  });
  return kAll;
}

}  // namespace kiln::ptx
