// PTX ISA, "Data Movement and Conversion Instructions": cvt. The forms that kernels
// have in their loops have handlers of their own; one handler does all others.

#include <algorithm>
#include <array>
#include <cfenv>
#include <cmath>
#include <cstring>

#include "tests/support/ptx/numbers.h"
#include "tests/support/ptx/operations/elementwise.h"

namespace kiln::ptx {
namespace {

/// What any type's value is: an integer of up to 64 bits, or a double.
struct Number {
  bool is_integer = false;
  bool is_signed = false;
  bool is_double = false;
  std::uint64_t integer = 0;  // sign-extended
  double real = 0;
};

Number read(const std::byte* from, Type type, bool flushes) {
  Number number{.is_integer = type.is_integer(),
                .is_signed = type.kind == Kind::kSigned,
                .is_double = type.is_float(64)};
  std::uint64_t bits = 0;
  std::memcpy(&bits, from, type.bits / 8);
  if (number.is_integer) {
    const unsigned unused = 64U - type.bits;
    number.integer = number.is_signed
                         ? static_cast<std::uint64_t>(
                               static_cast<std::int64_t>(bits << unused) >> unused)
                         : bits;
    return number;
  }
  if (type.kind == Kind::kE4m3)
    number.real = from_e4m3(static_cast<std::uint8_t>(bits));
  else if (type.kind == Kind::kE5m2)
    number.real = from_e5m2(static_cast<std::uint8_t>(bits));
  else if (type.kind == Kind::kBfloat)
    number.real = to_float(Bfloat{static_cast<std::uint16_t>(bits)});
  else if (type.bits == 16)
    number.real = to_float(Half{static_cast<std::uint16_t>(bits)});
  else if (type.bits == 64)
    number.real = std::bit_cast<double>(bits);
  else {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    number.real = flushes ? canonical(flushed(value)) : value;
  }
  return number;
}

std::uint64_t to_integer(const Number& number, Type type, const Instruction& how) {
  const bool is_signed = type.kind == Kind::kSigned;
  using Wide = __int128;
  const Wide most =
      is_signed ? (Wide{1} << (type.bits - 1)) - 1 : (Wide{1} << type.bits) - 1;
  const Wide least = is_signed ? -(Wide{1} << (type.bits - 1)) : 0;
  if (!number.is_integer) {
    // A NaN gives 0; a double's NaN in 8 or 16 bits gives only the top bit. What is too
    // large gives the nearest of the type.
    if (std::isnan(number.real))
      return number.is_double && type.bits <= 16 ? 1U << (type.bits - 1U) : 0;
    const double rounded = rounded_to_integer(number.real, how.rounding);
    if (rounded >= static_cast<double>(most))
      return static_cast<std::uint64_t>(most);
    if (rounded <= static_cast<double>(least))
      return static_cast<std::uint64_t>(least);
    return static_cast<std::uint64_t>(static_cast<Wide>(rounded));
  }
  const Wide value = number.is_signed ? Wide{static_cast<std::int64_t>(number.integer)}
                                      : Wide{number.integer};
  return static_cast<std::uint64_t>(how.saturates ? std::clamp(value, least, most)
                                                  : value);
}

// With 64 bits of mantissa a long double holds any integer; its rounding to a double is
// the machine's, to less than 53 bits by way of an odd double.
double real_of_integer(const Number& number, bool is_last, Rounding rounding) {
  const long double exact =
      number.is_signed
          ? static_cast<long double>(static_cast<std::int64_t>(number.integer))
          : static_cast<long double>(number.integer);
  const auto near = static_cast<double>(exact);
  if (static_cast<long double>(near) == exact ||
      (is_last && rounding == Rounding::kNearest))
    return near;
  const bool is_above = static_cast<long double>(near) > exact;
  const double down = is_above ? std::nextafter(near, -HUGE_VAL) : near;
  const double up = is_above ? near : std::nextafter(near, HUGE_VAL);
  if (!is_last)
    return (std::bit_cast<std::uint64_t>(down) & 1U) != 0 ? down : up;
  if (rounding == Rounding::kUp || (rounding == Rounding::kZero && exact < 0))
    return up;
  return down;
}

std::optional<Format> format_of(Type type) {
  if (type.kind == Kind::kBfloat)
    return kBfloatFormat;
  if (type.kind == Kind::kTensor)
    return kTensorFormat;
  if (type.kind == Kind::kE4m3)
    return kE4m3Format;
  if (type.kind == Kind::kE5m2)
    return kE5m2Format;
  if (type.bits == 16)
    return kHalfFormat;
  return type.bits == 32 ? std::optional(kFloatFormat) : std::nullopt;
}

/// The bits of a value that has been rounded to the type.
std::uint64_t encode(double value, Type type) {
  switch (type.kind) {
    case Kind::kE4m3:
      return e4m3_bits(value);
    case Kind::kE5m2:
      return e5m2_bits(value);
    case Kind::kBfloat:
      return to_bfloat(static_cast<float>(value)).bits;
    default:
      break;
  }
  if (type.bits == 64)
    return std::bit_cast<std::uint64_t>(value);
  if (type.bits == 16)
    return half_bits(value);
  return std::isnan(value) ? kNan32
                           : std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

/// A double's NaN with what there is room for.
std::uint64_t nan_of(double nan, Type type) {
  const auto bits = std::bit_cast<std::uint64_t>(nan);
  const std::uint64_t sign = bits >> 63U;
  if (type.bits == 64)
    return bits;
  return type.bits == 16 ? sign << 15U | (bits >> 42U & 0x7fffU)
                         : sign << 31U | (bits >> 29U & 0x7fffffffU);
}

// mode: what the modifiers say of the result.
enum Mode : std::uint8_t { kRelu = 1, kFinite = 2, kToIntegral = 4 };

std::uint64_t to_real(const Number& number, Type type, const Instruction& how) {
  const auto format = format_of(type);
  double value = number.is_integer ? real_of_integer(number, !format, how.rounding)
                                   : quieted(number.real);
  if (number.is_double && std::isnan(value) && type.kind == Kind::kFloat &&
      !how.saturates)
    return nan_of(value, type);
  if ((how.mode & kToIntegral) != 0)
    value = rounded_to_integer(value, how.rounding);
  else if (format)
    value = rounded_to(*format, value, how.rounding);
  if ((how.mode & kRelu) != 0 && value <= 0)
    value = 0;  // of -0, too
  if ((how.mode & kFinite) != 0 && std::isinf(value) && format)
    value = std::copysign(format->largest, value);
  if (how.saturates)
    value = saturated(value);
  if (how.flushes && type.is_float(32))
    value = flushed(static_cast<float>(value));
  return encode(value, type);
}

/// Types are found by their index.
constexpr auto kTypeNames = std::to_array<std::string_view>(
    {"u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "bf16", "f32", "f64",
     "tf32", "e4m3", "e5m2", "f16x2", "bf16x2", "e4m3x2", "e5m2x2"});
const std::array<Type, kTypeNames.size()>& types() {
  static const auto all = [] {
    std::array<Type, kTypeNames.size()> found;
    for (std::size_t i = 0; i < found.size(); ++i)
      found[i] = type_named(kTypeNames[i]).value();
    return found;
  }();
  return all;
}
std::uint32_t index_of(Type type) {
  const auto& all = types();
  return static_cast<std::uint32_t>(std::find(all.begin(), all.end(), type) -
                                    all.begin());
}

// Operands: the result, and its source: for a result of two elements, the one of its
// high half and the one of its low. targets: the types.
void convert(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const Type to = types()[instruction.targets[0]];
  const Type from = types()[instruction.targets[1]];
  const Operand& target = operands[0];
  for_each_lane(lanes.mask, [&](unsigned lane) {
    std::uint64_t result = 0;
    for (unsigned element = 0; element < to.count; ++element) {
      const Operand& source = operands[operands.size() == 3 && element == 0 ? 2 : 1];
      const std::byte* const at = lanes.at<std::byte>(source) +
                                  std::size_t{lane} * source.bytes +
                                  (from.count == 2 ? element * from.bits / 8U : 0U);
      const Number number = read(at, from, instruction.flushes);
      const std::uint64_t bits = to.is_integer() ? to_integer(number, to, instruction)
                                                 : to_real(number, to, instruction);
      const std::uint64_t width =
          to.bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << to.bits) - 1;
      // A wider register gets the sign.
      result |= to.count == 1 && to.kind == Kind::kSigned
                    ? static_cast<std::uint64_t>(
                          static_cast<std::int64_t>(bits << (64U - to.bits)) >>
                          (64U - to.bits))
                    : (bits & width) << (element * to.bits);
    }
    std::memcpy(lanes.at<std::byte>(target) + std::size_t{lane} * target.bytes, &result,
                target.bytes);
  });
}

template <typename To>
struct Cast {
  template <typename From>
  To operator()(From value) const {
    return static_cast<To>(value);
  }
};
struct FromSmall {
  float operator()(Half value) const { return canonical(to_float(value)); }
  float operator()(Bfloat value) const { return to_float(value); }
};
template <typename T>
struct ToSmall {
  T operator()(float value) const { return from_float<T>(value); }
};
template <typename T>
struct ToPair {
  std::uint32_t operator()(float high, float low) const {
    return std::uint32_t{from_float<T>(high).bits} << 16U | from_float<T>(low).bits;
  }
};

template <typename To, typename From>
constexpr Handler cast_of() {
  return &elementwise<Cast<To>, To, From>;
}

/// From one integer type to another, both in registers of their width.
Handler integer_cast(Type to, Type from) {
  const bool is_signed = from.kind == Kind::kSigned;
  if (to.bits == 64 && from.bits == 32)
    return is_signed ? cast_of<std::int64_t, std::int32_t>()
                     : cast_of<std::uint64_t, std::uint32_t>();
  if (to.bits == 32 && from.bits == 64)
    return cast_of<std::uint32_t, std::uint64_t>();
  if (to.bits == 32 && from.bits == 16)
    return is_signed ? cast_of<std::int32_t, std::int16_t>()
                     : cast_of<std::uint32_t, std::uint16_t>();
  if (to.bits == 16 && from.bits == 32)
    return cast_of<std::uint16_t, std::uint32_t>();
  return nullptr;
}

/// For the forms without any modifier but the usual rounding; null for others.
Handler usual_conversion(const Instruction& made, Type to, Type from) {
  const bool is_usual = !made.flushes && !made.saturates && made.mode == 0 &&
                        made.rounding == Rounding::kNearest;
  for (std::size_t i = 0; i < made.operands.size(); ++i) {
    if (made.operands[i].bytes != (i == 0 ? to : from).bytes())
      return nullptr;
  }
  if (to.is_integer() && from.is_integer())
    return made.saturates ? nullptr : integer_cast(to, from);
  if (!is_usual)
    return nullptr;
  if (from.is_float(32) && to.count == 2 && to.bits == 16)
    return to.kind == Kind::kBfloat
               ? &elementwise<ToPair<Bfloat>, std::uint32_t, float, float>
               : &elementwise<ToPair<Half>, std::uint32_t, float, float>;
  if (from.is_float(32) && to.count == 1 && to.bits == 16 && !to.is_integer())
    return to.kind == Kind::kBfloat ? &elementwise<ToSmall<Bfloat>, Bfloat, float>
                                    : &elementwise<ToSmall<Half>, Half, float>;
  if (to.is_float(32) && from.bits == 16 && !from.is_integer())
    return from.kind == Kind::kBfloat ? &elementwise<FromSmall, float, Bfloat>
                                      : &elementwise<FromSmall, float, Half>;
  if (to.is_float(32) && from == Type{Kind::kSigned, 32})
    return cast_of<float, std::int32_t>();
  if (to.is_float(64) && from.is_float(32))
    return cast_of<double, float>();
  return nullptr;
}

void select_conversion(Decoder& decoder) {
  Instruction& made = decoder.made;
  // "rni" and its like round to an integer.
  const auto integral = decoder.take_one({"rni", "rzi", "rmi", "rpi"});
  made.rounding = integral ? static_cast<Rounding>(*integral) : decoder.take_rounding();
  made.mode = static_cast<std::uint8_t>((decoder.take("relu") ? kRelu : 0));
  const bool is_finite = decoder.take("satfinite");
  made.flushes = decoder.take("ftz");
  made.saturates = decoder.take("sat");
  if (decoder.take("relu"))
    made.mode |= kRelu;
  const Type to = decoder.take_type();
  const Type from = decoder.take_type();
  if (is_finite)
    made.mode |= kFinite;
  if (integral && !to.is_integer())
    made.mode |= kToIntegral;
  made.targets = {index_of(to), index_of(from)};
  decoder.may_be_wider = true;
  if (made.targets[0] == kTypeNames.size() || made.targets[1] == kTypeNames.size())
    decoder.refuse("these types are not run here");
  // Eight bits lie in registers of 16 or more.
  const auto held = [](Type type) { return type.bytes() < 2 ? kB16 : bits_of(type); };
  if (decoder.count() == 3)
    decoder.operands(held(to), {bits_of(from), bits_of(from)});
  else
    made.operands = {decoder.destination(decoder.argument(0), to),
                     decoder.source(decoder.argument(1), from)};
  const Handler usual = usual_conversion(made, to, from);
  made.run = usual != nullptr ? usual : &convert;
}

}  // namespace

std::span<const Operation> conversion_operations() {
  static constexpr auto kAll = std::to_array<Operation>({{"cvt", &select_conversion}});
  return kAll;
}

}  // namespace kiln::ptx
