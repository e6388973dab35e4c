// PTX ISA, "Integer Arithmetic Instructions": sums and products. Bits and fields of
// bits are in bits.cc, sums with a carry in carry.cc. What add, sub, mul, mad, div,
// min, max, abs and neg do of floats is in floating.cc.

#include "tests/support/ptx/operations/integer.h"

#include <algorithm>
#include <array>
#include <limits>

#include "tests/support/ptx/operations/elementwise.h"

namespace kiln::ptx {
namespace {

template <typename T>
T wrapped(Wrapping<T> value) {
  return static_cast<T>(value);
}
template <typename T>
Wrapping<T> bits(T value) {
  return static_cast<Wrapping<T>>(value);
}

using Add = decltype([]<typename T>(T a, T b) -> T {
  return wrapped<T>(bits(a) + bits(b));
});
using Subtract = decltype([]<typename T>(T a, T b) -> T {
  return wrapped<T>(bits(a) - bits(b));
});
using MultiplyLow = decltype([]<typename T>(T a, T b) -> T {
  return wrapped<T>(bits(a) * bits(b));
});
template <typename T>
using Twice = std::conditional_t<
    std::is_signed_v<T>,
    std::conditional_t<sizeof(T) == 8, __int128,
                       std::conditional_t<sizeof(T) == 4, std::int64_t, std::int32_t>>,
    std::conditional_t<
        sizeof(T) == 8, unsigned __int128,
        std::conditional_t<sizeof(T) == 4, std::uint64_t, std::uint32_t>>>;
using MultiplyHigh = decltype([]<typename T>(T a, T b) -> T {
  return static_cast<T>((Twice<T>{a} * b) >> (8 * sizeof(T)));
});
using MultiplyWide = decltype([]<typename T>(T a, T b) -> Twice<T> {
  return Twice<T>{a} * b;
});
std::int32_t saturated(std::int64_t value) {
  using Limits = std::numeric_limits<std::int32_t>;
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(value, Limits::min(), Limits::max()));
}
using AddSaturated = decltype([](std::int64_t a, std::int64_t b) {
  return saturated(a + b);
});
using SubtractSaturated = decltype([](std::int64_t a, std::int64_t b) {
  return saturated(a - b);
});
template <typename Product, typename Sum = Add>
struct Then {
  template <typename T, typename S>
  S operator()(T a, T b, S c) const {
    return Sum{}(static_cast<S>(Product{}(a, b)), c);
  }
};
// Division by zero has no defined result; devices give all ones.
struct Divide {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0)
      return static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1))
      return Subtract{}(T{0}, a);
    return static_cast<T>(a / b);
  }
};
struct Remain {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0)
      return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1))
      return 0;
    return static_cast<T>(a % b);
  }
};
using Absolute = decltype([]<typename T>(T a) -> T {
  return a < T{0} ? Subtract{}(T{0}, a) : a;
});
using Negate = decltype([]<typename T>(T a) -> T { return Subtract{}(T{0}, a); });
using Least = decltype([]<typename T>(T a, T b) -> T { return b < a ? b : a; });
using Greatest = decltype([]<typename T>(T a, T b) -> T { return a < b ? b : a; });
using ClampedAtZero = decltype([]<typename T>(T a) -> T {
  return a < T{0} ? T{0} : a;
});
template <typename F>
struct AtLeastZero {
  template <typename T>
  T operator()(T a, T b) const {
    return ClampedAtZero{}(F{}(a, b));
  }
};
using SumOfDifferences = decltype([]<typename T>(T a, T b, T c) -> T {
  return Add{}(c, a < b ? Subtract{}(b, a) : Subtract{}(a, b));
});
// The low 24 bits of both, the low or the high 32 of the 48 bits of their product.
template <typename T>
std::int64_t product24(T a, T b) {
  const auto low = [](T value) {
    const auto shifted = static_cast<std::uint32_t>(value) << 8U;
    return std::is_signed_v<T> ? std::int64_t{static_cast<std::int32_t>(shifted) >> 8}
                               : std::int64_t{shifted >> 8U};
  };
  return low(a) * low(b);
}
using Multiply24Low = decltype([]<typename T>(T a, T b) -> T {
  return static_cast<T>(product24(a, b));
});
using Multiply24High = decltype([]<typename T>(T a, T b) -> T {
  return static_cast<T>(product24(a, b) >> 16);
});

template <typename A, typename B>
struct DotOfBytes {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    for (unsigned byte = 0; byte < 32; byte += 8)
      c += static_cast<std::uint32_t>(int{static_cast<A>(a >> byte)} *
                                      int{static_cast<B>(b >> byte)});
    return c;
  }
};
template <typename A, typename B, unsigned kFirst>
struct DotOfHalves {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    for (unsigned i = 0; i < 2; ++i)
      c += static_cast<std::uint32_t>(int{static_cast<A>(a >> (16 * i))} *
                                      int{static_cast<B>(b >> (kFirst + 8 * i))});
    return c;
  }
};

void select_sum_of_differences(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(type, {type, type, type});
  decoder.run_by(integer_handler<SumOfDifferences, 3>(type));
}
void select_remain(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(type, {type, type});
  decoder.run_by(integer_handler<Remain, 2>(type));
}

template <template <typename, typename> typename Dot>
Handler dot_handler(Type a, Type b) {
  constexpr auto kThree = [](auto dot) {
    return elementwise_of<decltype(dot), std::uint32_t, 3>();
  };
  const bool is_signed[]{a.kind == Kind::kSigned, b.kind == Kind::kSigned};
  if (is_signed[0])
    return is_signed[1] ? kThree(Dot<std::int8_t, std::int8_t>{})
                        : kThree(Dot<std::int8_t, std::uint8_t>{});
  return is_signed[1] ? kThree(Dot<std::uint8_t, std::int8_t>{})
                      : kThree(Dot<std::uint8_t, std::uint8_t>{});
}
template <typename A, typename B>
using Wide16 = std::conditional_t<std::is_signed_v<A>, std::int16_t, std::uint16_t>;
template <typename A, typename B>
using DotLow = DotOfHalves<Wide16<A, B>, B, 0>;
template <typename A, typename B>
using DotHigh = DotOfHalves<Wide16<A, B>, B, 16>;
void select_dot4(Decoder& decoder) {
  const Type a = decoder.take_type();
  const Type b = decoder.take_type();
  decoder.operands(kB32, {kB32, kB32, kB32});
  decoder.run_by(dot_handler<DotOfBytes>(a, b));
}
void select_dot2(Decoder& decoder) {
  const bool is_high = decoder.take_one_of({"lo", "hi"}) == 1;
  const Type a = decoder.take_type();
  const Type b = decoder.take_type();
  decoder.operands(kB32, {kB32, kB32, kB32});
  decoder.run_by(is_high ? dot_handler<DotHigh>(a, b) : dot_handler<DotLow>(a, b));
}

template <typename T>
void select_multiply24_of(Decoder& decoder, bool is_high, bool adds) {
  if (adds)
    decoder.made.run = is_high ? elementwise_of<Then<Multiply24High>, T, 3>()
                               : elementwise_of<Then<Multiply24Low>, T, 3>();
  else
    decoder.made.run = is_high ? elementwise_of<Multiply24High, T, 2>()
                               : elementwise_of<Multiply24Low, T, 2>();
}
void select_multiply24(Decoder& decoder) {
  const bool is_high = decoder.take_one_of({"lo", "hi"}) == 1;
  const bool adds = decoder.statement().opcode == "mad24";
  const Type type = decoder.take_type();
  if (adds)
    decoder.operands(type, {type, type, type});
  else
    decoder.operands(type, {type, type});
  if (type.kind == Kind::kSigned)
    select_multiply24_of<std::int32_t>(decoder, is_high, adds);
  else
    select_multiply24_of<std::uint32_t>(decoder, is_high, adds);
}

}  // namespace

void select_integer(Decoder& decoder, Type type) {
  const std::string_view opcode = decoder.statement().opcode;
  const bool saturates = decoder.made.saturates;
  if (opcode == "abs" || opcode == "neg") {
    decoder.operands(type, {type});
    decoder.run_by(opcode == "abs" ? integer_handler<Absolute, 1>(type)
                                   : integer_handler<Negate, 1>(type));
    return;
  }
  decoder.operands(type, {type, type});
  if (opcode == "add")
    decoder.run_by(saturates ? elementwise_of<AddSaturated, std::int32_t, 2>()
                             : integer_handler<Add, 2>(type));
  else if (opcode == "sub")
    decoder.run_by(saturates ? elementwise_of<SubtractSaturated, std::int32_t, 2>()
                             : integer_handler<Subtract, 2>(type));
  else if (opcode == "div")
    decoder.run_by(integer_handler<Divide, 2>(type));
  else if (opcode == "min")
    decoder.run_by(decoder.made.is_other ? integer_handler<AtLeastZero<Least>, 2>(type)
                                         : integer_handler<Least, 2>(type));
  else
    decoder.run_by(decoder.made.is_other
                       ? integer_handler<AtLeastZero<Greatest>, 2>(type)
                       : integer_handler<Greatest, 2>(type));
}

template <typename T>
Handler wide_handler(bool adds) {
  return adds ? Handler{&elementwise<Then<MultiplyWide>, Twice<T>, T, T, Twice<T>>}
              : Handler{&elementwise<MultiplyWide, Twice<T>, T, T>};
}

void select_product(Decoder& decoder, Type type, Part part) {
  const bool adds = decoder.statement().opcode == "mad";
  const bool is_signed = type.kind == Kind::kSigned;
  if (part == Part::kWide) {
    const Type twice{type.kind, static_cast<std::uint8_t>(2 * type.bits)};
    if (adds)
      decoder.operands(twice, {type, type, twice});
    else
      decoder.operands(twice, {type, type});
    if (type.bits == 16)
      decoder.run_by(is_signed ? wide_handler<std::int16_t>(adds)
                               : wide_handler<std::uint16_t>(adds));
    else
      decoder.run_by(is_signed ? wide_handler<std::int32_t>(adds)
                               : wide_handler<std::uint32_t>(adds));
    return;
  }
  // mad.hi.sat.s32 alone.
  if (decoder.made.saturates &&
      !(adds && part == Part::kHigh && is_signed && type.bits == 32))
    decoder.refuse("its modifier .sat is not known here");
  if (adds)
    decoder.operands(type, {type, type, type});
  else
    decoder.operands(type, {type, type});
  if (part == Part::kHigh)
    decoder.run_by(
        !adds ? integer_handler<MultiplyHigh, 2>(type)
        : decoder.made.saturates
            ? elementwise_of<Then<MultiplyHigh, AddSaturated>, std::int32_t, 3>()
            : integer_handler<Then<MultiplyHigh>, 3>(type));
  else
    decoder.run_by(adds ? integer_handler<Then<MultiplyLow>, 3>(type)
                        : integer_handler<MultiplyLow, 2>(type));
}

std::span<const Operation> integer_operations() {
  static constexpr auto kAll = std::to_array<Operation>({
      {"sad", &select_sum_of_differences},
      {"rem", &select_remain},
      {"dp4a", &select_dot4},
      {"dp2a", &select_dot2},
      {"mul24", &select_multiply24},
      {"mad24", &select_multiply24},
  });
  return kAll;
}

}  // namespace kiln::ptx
