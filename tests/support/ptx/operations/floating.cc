// PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions"
// and "Mixed Precision Floating Point Instructions"; and which form of add, mul and
// their like a statement has.

#include <array>
#include <cmath>

#include "tests/support/ptx/numbers.h"
#include "tests/support/ptx/operations/directed.h"
#include "tests/support/ptx/operations/elementwise.h"
#include "tests/support/ptx/operations/integer.h"

namespace kiln::ptx {
namespace {

// A float's arithmetic gives one NaN; a double's keeps what the machine makes.
float canonical(float value) {
  return value != value ? std::bit_cast<float>(kNan32) : value;
}
double canonical(double value) {
  return value;
}

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Subtract {
  template <typename T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct Multiply {
  template <typename T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Divide {
  template <typename T>
  T operator()(T a, T b) const {
    return a / b;
  }
};
struct Fuse {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};
struct Root {
  template <typename T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct Reciprocal {
  template <typename T>
  T operator()(T a) const {
    return T{1} / a;
  }
};

/// F of floats, doubles, or 16 bits by way of floats: with 24 bits for 11 or 8 a sum,
/// product, quotient or root rounded twice is right.
template <typename F, bool kFlushes, bool kSaturates>
struct Rounded {
  template <typename T, typename... More>
  T operator()(T a, More... more) const {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
      return finish(canonical(F{}(input(a), input(more)...)));
    else if constexpr (std::is_same_v<F, Fuse>)
      return finish(from_float<T>(
          to_float_odd(fused_to_odd(to_float(input(a)), to_float(input(more))...))));
    else
      return finish(from_float<T>(F{}(to_float(input(a)), to_float(input(more))...)));
  }

 private:
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

// Of two NaNs the canonical one, of one NaN the number; -0 lies below 0.
template <bool kGreatest, bool kKeepsNan>
struct Extreme {
  template <typename T>
  T operator()(T a, T b) const {
    const bool is_first_nan = a != a;
    const bool is_second_nan = b != b;
    if (is_first_nan || is_second_nan)
      return kKeepsNan || (is_first_nan && is_second_nan)
                 ? canonical(std::numeric_limits<T>::quiet_NaN())
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

// By their bits, of NaN too.
struct Absolute {
  float operator()(float a) const { return std::fabs(a); }
  double operator()(double a) const { return std::fabs(a); }
  template <typename T>
  T operator()(T a) const {
    return {static_cast<std::uint16_t>(a.bits & 0x7fffU)};
  }
};
struct Negate {
  float operator()(float a) const { return -a; }
  double operator()(double a) const { return -a; }
  template <typename T>
  T operator()(T a) const {
    return {static_cast<std::uint16_t>(a.bits ^ 0x8000U)};
  }
};
template <typename F>
struct Flushed {
  template <typename T>
  T operator()(T a) const {
    return flushed(F{}(a));
  }
};
struct CopySign {
  template <typename T>
  T operator()(T sign, T magnitude) const {
    return std::copysign(magnitude, sign);
  }
};
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

void require(Decoder& decoder, Handler handler) {
  if (handler == nullptr)
    decoder.refuse("this type is not one of the instruction's");
  decoder.made.run = handler;
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
#pragma GCC ivdep
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
    require(decoder, directed_handler(opcode, type));
  } else if (is_fused) {
    const bool is_plain = type.is_float(32) && !made.flushes && !made.saturates;
    require(decoder,
            is_plain && has_fused_instruction() ? Handler{fuse_floats}
            : made.is_other
                ? float_handler<AtLeastZero<Rounded<Fuse, false, false>>, 3>(type)
                : rounded_handler<Fuse, 3>(made, type));
  } else if (opcode == "add") {
    require(decoder, rounded_handler<Add, 2>(made, type));
  } else if (opcode == "sub") {
    require(decoder, rounded_handler<Subtract, 2>(made, type));
  } else if (opcode == "mul") {
    require(decoder, rounded_handler<Multiply, 2>(made, type));
  } else {
    require(decoder, rounded_handler<Divide, 2>(made, type));
  }
}

template <bool kGreatest, bool kKeepsNan, bool kOfMagnitudes>
using ExtremeOf =
    std::conditional_t<kOfMagnitudes, OfMagnitudes<Extreme<kGreatest, kKeepsNan>>,
                       Extreme<kGreatest, kKeepsNan>>;
template <bool kGreatest>
void select_extreme(Decoder& decoder, Type type) {
  decoder.operands(type, {type, type});
  const bool keeps_nan = (decoder.made.mode & 1U) != 0;
  const bool of_magnitudes = (decoder.made.mode & 2U) != 0;
  if (decoder.count() != 3)
    decoder.refuse("of three operands it is not run here");
  if (keeps_nan)
    require(decoder, of_magnitudes
                         ? rounded_handler<ExtremeOf<kGreatest, true, true>, 2>(
                               decoder.made, type)
                         : rounded_handler<ExtremeOf<kGreatest, true, false>, 2>(
                               decoder.made, type));
  else
    require(decoder, of_magnitudes
                         ? rounded_handler<ExtremeOf<kGreatest, false, true>, 2>(
                               decoder.made, type)
                         : rounded_handler<ExtremeOf<kGreatest, false, false>, 2>(
                               decoder.made, type));
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
  if (type.is_integer()) {
    for (const std::string_view modifier : statement.modifiers) {
      if (modifier == "cc") {
        select_integer_with_carry(decoder);
        return;
      }
    }
    made.saturates = decoder.take("sat");
    made.is_other = decoder.take("relu");
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
  made.saturates = decoder.take("sat");
  made.is_other = decoder.take("relu");
  made.mode = static_cast<std::uint8_t>((decoder.take("NaN") ? 1 : 0) |
                                        (decoder.take("xorsign") ? 2 : 0));
  decoder.take("abs");
  decoder.take_type();
  if (type != type_of(statement) || decoder.has_type())
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
  require(decoder, decoder.made.flushes ? float_handler<Flushed<F>, 1>(type)
                                        : float_handler<F, 1>(type));
}

void select_copysign(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(type, {type, type});
  decoder.made.run = type.bits == 64 ? elementwise_of<CopySign, double, 2>()
                                     : elementwise_of<CopySign, float, 2>();
}

// What the ISA permits as the error of each approximation.
struct Approximation {
  double (*function)(double);
  int ulps;         // relative
  double absolute;  // the greatest error, where it is no relative one
};
double exp2_of(double x) {
  return std::exp2(x);
}
double log2_of(double x) {
  return std::log2(x);
}
double reciprocal_of(double x) {
  return 1 / x;
}
double reciprocal_root_of(double x) {
  return 1 / std::sqrt(x);
}
double root_of(double x) {
  return std::sqrt(x);
}
double sine_of(double x) {
  return std::sin(x);
}
double cosine_of(double x) {
  return std::cos(x);
}
double tanh_of(double x) {
  return std::tanh(x);
}
enum Approximated : std::uint8_t {
  kExp2,
  kLog2,
  kReciprocal,
  kReciprocalRoot,
  kRoot,
  kSine,
  kCosine,
  kTanh
};
constexpr std::array<Approximation, 8> kApproximations{{
    {&exp2_of, 2, 0},
    {&log2_of, 1, 0x1p-22},
    {&reciprocal_of, 1, 0},
    {&reciprocal_root_of, 2, 0},
    {&root_of, 1, 0},
    {&sine_of, 0, 0x1p-21},
    {&cosine_of, 0, 0x1p-21},
    {&tanh_of, 1 << 12, 0},
}};

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

void select_approximation(Decoder& decoder) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"});
  const std::string_view opcode = decoder.statement().opcode;
  Instruction& made = decoder.made;
  const Type type = type_of(decoder.statement());
  const bool is_approximate = decoder.take("approx");
  made.rounding = decoder.take_rounding();
  made.flushes = decoder.take("ftz");
  decoder.take_type();
  decoder.operands(type, {type});
  if (!is_approximate) {  // rcp, sqrt
    if (made.rounding != Rounding::kNearest)
      require(decoder, directed_handler(opcode, type));
    else
      require(decoder, opcode == "rcp" ? rounded_handler<Reciprocal, 1>(made, type)
                                       : rounded_handler<Root, 1>(made, type));
    return;
  }
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == opcode)
      made.mode = static_cast<std::uint8_t>(i);
  }
  made.is_other = type.count == 2;
  if (type.bits == 64)
    made.run = &approximate_doubles;
  else if (type.kind == Kind::kBfloat)
    made.run = &approximate<Bfloat>;
  else if (type.bits == 16)
    made.run = &approximate<ptx::Half>;
  else
    made.run = &approximate<float>;
}

// div.approx and div.full: 2 units in the last place.
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
