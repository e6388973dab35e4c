// PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision Integer Arithmetic
// Instructions". What add, sub, mul, mad, div, min, max, abs and neg do of floats is in
// floating.cc.

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

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return wrapped<T>(bits(a) + bits(b));
  }
};
struct Subtract {
  template <typename T>
  T operator()(T a, T b) const {
    return wrapped<T>(bits(a) - bits(b));
  }
};
struct MultiplyLow {
  template <typename T>
  T operator()(T a, T b) const {
    return wrapped<T>(bits(a) * bits(b));
  }
};
template <typename T>
using Twice = std::conditional_t<
    std::is_signed_v<T>,
    std::conditional_t<sizeof(T) == 8, __int128,
                       std::conditional_t<sizeof(T) == 4, std::int64_t, std::int32_t>>,
    std::conditional_t<
        sizeof(T) == 8, unsigned __int128,
        std::conditional_t<sizeof(T) == 4, std::uint64_t, std::uint32_t>>>;
struct MultiplyHigh {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>((Twice<T>{a} * b) >> (8 * sizeof(T)));
  }
};
struct MultiplyWide {
  template <typename T>
  Twice<T> operator()(T a, T b) const {
    return Twice<T>{a} * b;
  }
};
template <typename Product>
struct Then {
  template <typename T, typename S>
  S operator()(T a, T b, S c) const {
    return Add{}(static_cast<S>(Product{}(a, b)), c);
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
struct Absolute {
  template <typename T>
  T operator()(T a) const {
    return a < T{0} ? Subtract{}(T{0}, a) : a;
  }
};
struct Negate {
  template <typename T>
  T operator()(T a) const {
    return Subtract{}(T{0}, a);
  }
};
struct Least {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Greatest {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct ClampedAtZero {
  template <typename T>
  T operator()(T a) const {
    return a < T{0} ? T{0} : a;
  }
};
template <typename F>
struct AtLeastZero {
  template <typename T>
  T operator()(T a, T b) const {
    return ClampedAtZero{}(F{}(a, b));
  }
};
struct AddSaturated {
  std::int32_t operator()(std::int32_t a, std::int32_t b) const {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(
        std::int64_t{a} + b, std::numeric_limits<std::int32_t>::min(),
        std::numeric_limits<std::int32_t>::max()));
  }
};
struct SubtractSaturated {
  std::int32_t operator()(std::int32_t a, std::int32_t b) const {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(
        std::int64_t{a} - b, std::numeric_limits<std::int32_t>::min(),
        std::numeric_limits<std::int32_t>::max()));
  }
};
struct SumOfDifferences {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add{}(c, a < b ? Subtract{}(b, a) : Subtract{}(a, b));
  }
};
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
struct Multiply24Low {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(product24(a, b));
  }
};
struct Multiply24High {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(product24(a, b) >> 16);
  }
};

struct CountOnes {
  template <typename T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::popcount(a));
  }
};
struct CountLeadingZeros {
  template <typename T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::countl_zero(a));
  }
};
struct Reverse {
  template <typename T>
  T operator()(T a) const {
    T result = 0;
    for (unsigned bit = 0; bit < 8 * sizeof(T); ++bit)
      result |= ((a >> bit) & T{1}) << (8 * sizeof(T) - 1 - bit);
    return result;
  }
};
// The highest bit that is not the sign; all ones where there is none.
template <bool kAsShift>
struct FindBit {
  template <typename T>
  std::uint32_t operator()(T a) const {
    const auto plain = static_cast<std::make_unsigned_t<T>>(a < T{0} ? ~a : a);
    if (plain == 0)
      return ~0U;
    const auto zeros = static_cast<unsigned>(std::countl_zero(plain));
    return kAsShift ? zeros : static_cast<unsigned>(8 * sizeof(T)) - 1 - zeros;
  }
};
struct ExtractField {
  template <typename T>
  T operator()(T a, std::uint32_t position, std::uint32_t length) const {
    constexpr unsigned kBits = 8 * sizeof(T);
    const unsigned at = position & 0xffU;
    const unsigned size = length & 0xffU;
    const unsigned last = std::min(at + size - 1, kBits - 1);
    const auto plain = static_cast<std::make_unsigned_t<T>>(a);
    const bool sign = std::is_signed_v<T> && size != 0 && ((plain >> last) & 1U) != 0;
    std::make_unsigned_t<T> result = 0;
    for (unsigned bit = 0; bit < kBits; ++bit) {
      const bool is_set =
          bit < size && at + bit < kBits ? ((plain >> (at + bit)) & 1U) != 0 : sign;
      result |= static_cast<std::make_unsigned_t<T>>(is_set) << bit;
    }
    return static_cast<T>(result);
  }
};
template <typename T>
T ones(std::uint32_t position, std::uint32_t length) {
  constexpr unsigned kBits = 8 * sizeof(T);
  if (position >= kBits || length == 0)
    return 0;
  const T low = length >= kBits ? ~T{0} : static_cast<T>((T{1} << length) - 1);
  return static_cast<T>(low << position);
}
struct InsertField {
  template <typename T>
  T operator()(T a, T b, std::uint32_t position, std::uint32_t length) const {
    const unsigned at = position & 0xffU;
    const T mask = ones<T>(at, length & 0xffU);
    return mask == 0 ? b : static_cast<T>((b & ~mask) | ((a << at) & mask));
  }
};
template <bool kClamps>
struct MakeMask {
  std::uint32_t operator()(std::uint32_t position, std::uint32_t length) const {
    return kClamps ? ones<std::uint32_t>(position, length)
                   : ones<std::uint32_t>(position & 31U, length & 31U);
  }
};
// szext: sign- or zero-extends from so many bits.
template <bool kClamps>
struct Extend {
  template <typename T>
  T operator()(T a, std::uint32_t width) const {
    const std::uint32_t size = kClamps ? std::min(width, 32U) : width & 31U;
    if (size == 0)
      return 0;
    const unsigned unused = 32 - size;
    const auto shifted = static_cast<T>(static_cast<std::uint32_t>(a) << unused);
    return static_cast<T>(shifted >> unused);
  }
};
// The place of the n-th set bit from `base` on, backwards where n is negative.
struct FindNthSet {
  std::uint32_t operator()(std::uint32_t mask, std::uint32_t base,
                           std::int32_t n) const {
    if (n == 0)
      return (mask >> (base & 31U) & 1U) != 0 ? base & 31U : ~0U;
    const int step = n > 0 ? 1 : -1;
    int left = std::abs(n);
    for (int at = static_cast<int>(base & 31U); at >= 0 && at < 32; at += step) {
      if ((mask >> static_cast<unsigned>(at) & 1U) != 0 && --left == 0)
        return static_cast<std::uint32_t>(at);
    }
    return ~0U;
  }
};
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

template <typename F, typename T>
struct ToCount {
  static constexpr Handler kHandler = &elementwise<F, std::uint32_t, T>;
};

void require(Decoder& decoder, Handler handler) {
  if (handler == nullptr)
    decoder.refuse("this type is not one of the instruction's");
  decoder.made.run = handler;
}

template <typename F>
void select_count(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(kU32, {type});
  require(decoder, type.bits == 64 ? ToCount<F, std::uint64_t>::kHandler
                                   : ToCount<F, std::uint32_t>::kHandler);
}

void select_reverse(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(type, {type});
  require(decoder, bits_handler<Reverse, 1>(type));
}

template <bool kAsShift>
Handler find_bit_handler(Type type) {
  using F = FindBit<kAsShift>;
  if (type.kind == Kind::kSigned)
    return type.bits == 64 ? ToCount<F, std::int64_t>::kHandler
                           : ToCount<F, std::int32_t>::kHandler;
  return type.bits == 64 ? ToCount<F, std::uint64_t>::kHandler
                         : ToCount<F, std::uint32_t>::kHandler;
}
void select_find_bit(Decoder& decoder) {
  const bool as_shift = decoder.take("shiftamt");
  const Type type = decoder.take_type();
  decoder.operands(kU32, {type});
  require(decoder,
          as_shift ? find_bit_handler<true>(type) : find_bit_handler<false>(type));
}

template <typename T>
Handler extract_handler() {
  return &elementwise<ExtractField, T, T, std::uint32_t, std::uint32_t>;
}
void select_extract(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(type, {type, kU32, kU32});
  const bool is_signed = type.kind == Kind::kSigned;
  if (type.bits == 64)
    require(decoder, is_signed ? extract_handler<std::int64_t>()
                               : extract_handler<std::uint64_t>());
  else
    require(decoder, is_signed ? extract_handler<std::int32_t>()
                               : extract_handler<std::uint32_t>());
}
void select_insert(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(type, {type, type, kU32, kU32});
  require(decoder, type.bits == 64
                       ? &elementwise<InsertField, std::uint64_t, std::uint64_t,
                                      std::uint64_t, std::uint32_t, std::uint32_t>
                       : &elementwise<InsertField, std::uint32_t, std::uint32_t,
                                      std::uint32_t, std::uint32_t, std::uint32_t>);
}
void select_mask(Decoder& decoder) {
  const bool clamps = *decoder.take_one({"wrap", "clamp"}) == 1;
  decoder.take_type();
  decoder.operands(kB32, {kU32, kU32});
  require(decoder, clamps ? elementwise_of<MakeMask<true>, std::uint32_t, 2>()
                          : elementwise_of<MakeMask<false>, std::uint32_t, 2>());
}
template <bool kClamps>
Handler extend_handler(Type type) {
  return type.kind == Kind::kSigned
             ? &elementwise<Extend<kClamps>, std::int32_t, std::int32_t, std::uint32_t>
             : &elementwise<Extend<kClamps>, std::uint32_t, std::uint32_t,
                            std::uint32_t>;
}
void select_extend(Decoder& decoder) {
  const bool clamps = *decoder.take_one({"wrap", "clamp"}) == 1;
  const Type type = decoder.take_type();
  decoder.operands(type, {type, kU32});
  require(decoder, clamps ? extend_handler<true>(type) : extend_handler<false>(type));
}
void select_find_nth(Decoder& decoder) {
  decoder.take_type();
  decoder.operands(kB32, {kB32, kB32, {Kind::kSigned, 32}});
  decoder.made.run = &elementwise<FindNthSet, std::uint32_t, std::uint32_t,
                                  std::uint32_t, std::int32_t>;
}
void select_sum_of_differences(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(type, {type, type, type});
  require(decoder, integer_handler<SumOfDifferences, 3>(type));
}
void select_remain(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(type, {type, type});
  require(decoder, integer_handler<Remain, 2>(type));
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
  require(decoder, dot_handler<DotOfBytes>(a, b));
}
void select_dot2(Decoder& decoder) {
  const bool is_high = *decoder.take_one({"lo", "hi"}) == 1;
  const Type a = decoder.take_type();
  const Type b = decoder.take_type();
  decoder.operands(kB32, {kB32, kB32, kB32});
  require(decoder, is_high ? dot_handler<DotHigh>(a, b) : dot_handler<DotLow>(a, b));
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
  const bool is_high = *decoder.take_one({"lo", "hi"}) == 1;
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

// One carry flag a lane, CC.CF: the mask that ends the operands.
enum CarryMode : std::uint8_t {
  kReads = 1,
  kWrites = 2,
  kSubtracts = 4,
  kHigh = 8,
  kProduct = 16
};
template <typename T>
void with_carry(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const unsigned mode = instruction.mode;
  const bool is_product = (mode & kProduct) != 0;
  const auto* const a = lanes.at<T>(operands[1]);
  const auto* const b = lanes.at<T>(operands[2]);
  const auto* const c = is_product ? lanes.at<T>(operands[3]) : nullptr;
  auto* const to = lanes.at<T>(operands[0]);
  auto* const flag = lanes.at<std::uint32_t>(operands.back());
  std::uint32_t carries = *flag;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    const bool carry = (mode & kReads) != 0 && (*flag >> lane & 1U) != 0;
    using Wide = unsigned __int128;
    Wide left = a[lane];
    Wide right = b[lane];
    if (is_product) {
      left = Wide{a[lane]} * b[lane];
      left = static_cast<T>((mode & kHigh) != 0 ? left >> (8 * sizeof(T)) : left);
      right = c[lane];
    }
    const Wide result = (mode & kSubtracts) != 0 ? left - right - Wide{carry}
                                                 : left + right + Wide{carry};
    to[lane] = static_cast<T>(result);
    const bool is_out = (result >> (8 * sizeof(T)) & 1U) != 0;
    carries = (carries & ~(1U << lane)) | (std::uint32_t{is_out} << lane);
  });
  if ((mode & kWrites) != 0)
    *flag = carries;
}
void select_carry(Decoder& decoder, std::uint8_t mode) {
  if ((mode & kProduct) != 0 && *decoder.take_one({"lo", "hi"}) == 1)
    mode |= kHigh;
  if (decoder.take("cc"))
    mode |= kWrites;
  const Type type = bits_of(decoder.take_type());
  if ((mode & kProduct) != 0)
    decoder.operands(type, {type, type, type});
  else
    decoder.operands(type, {type, type});
  decoder.made.operands.push_back(decoder.carry());
  decoder.made.mode = mode;
  decoder.made.run =
      type.bits == 64 ? &with_carry<std::uint64_t> : &with_carry<std::uint32_t>;
}
// NVRTC has signed ones of the product's high half in no program seen; a carry of them
// would need the signed product.
void select_addc(Decoder& decoder) {
  select_carry(decoder, kReads);
}
void select_subc(Decoder& decoder) {
  select_carry(decoder, kReads | kSubtracts);
}
void select_madc(Decoder& decoder) {
  select_carry(decoder, kReads | kProduct);
}

}  // namespace

void select_integer_with_carry(Decoder& decoder) {
  const std::string_view opcode = decoder.statement().opcode;
  select_carry(decoder, opcode == "sub"   ? std::uint8_t{kSubtracts}
                        : opcode == "mad" ? std::uint8_t{kProduct}
                                          : std::uint8_t{0});
}

void select_integer(Decoder& decoder, Type type) {
  const std::string_view opcode = decoder.statement().opcode;
  const bool saturates = decoder.made.saturates;
  if (opcode == "abs" || opcode == "neg") {
    decoder.operands(type, {type});
    require(decoder, opcode == "abs" ? integer_handler<Absolute, 1>(type)
                                     : integer_handler<Negate, 1>(type));
    return;
  }
  decoder.operands(type, {type, type});
  if (opcode == "add")
    require(decoder, saturates ? elementwise_of<AddSaturated, std::int32_t, 2>()
                               : integer_handler<Add, 2>(type));
  else if (opcode == "sub")
    require(decoder, saturates ? elementwise_of<SubtractSaturated, std::int32_t, 2>()
                               : integer_handler<Subtract, 2>(type));
  else if (opcode == "div")
    require(decoder, integer_handler<Divide, 2>(type));
  else if (opcode == "min")
    require(decoder, decoder.made.is_other
                         ? integer_handler<AtLeastZero<Least>, 2>(type)
                         : integer_handler<Least, 2>(type));
  else
    require(decoder, decoder.made.is_other
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
      require(decoder, is_signed ? wide_handler<std::int16_t>(adds)
                                 : wide_handler<std::uint16_t>(adds));
    else
      require(decoder, is_signed ? wide_handler<std::int32_t>(adds)
                                 : wide_handler<std::uint32_t>(adds));
    return;
  }
  if (decoder.made.saturates)
    decoder.refuse("sums of products with .sat are not run here");
  if (adds)
    decoder.operands(type, {type, type, type});
  else
    decoder.operands(type, {type, type});
  if (part == Part::kHigh)
    require(decoder, adds ? integer_handler<Then<MultiplyHigh>, 3>(type)
                          : integer_handler<MultiplyHigh, 2>(type));
  else
    require(decoder, adds ? integer_handler<Then<MultiplyLow>, 3>(type)
                          : integer_handler<MultiplyLow, 2>(type));
}

std::span<const Operation> integer_operations() {
  static constexpr auto kAll = std::to_array<Operation>({
      {"popc", &select_count<CountOnes>},
      {"clz", &select_count<CountLeadingZeros>},
      {"brev", &select_reverse},
      {"bfind", &select_find_bit},
      {"bfe", &select_extract},
      {"bfi", &select_insert},
      {"bmsk", &select_mask},
      {"szext", &select_extend},
      {"fns", &select_find_nth},
      {"sad", &select_sum_of_differences},
      {"rem", &select_remain},
      {"dp4a", &select_dot4},
      {"dp2a", &select_dot2},
      {"mul24", &select_multiply24},
      {"mad24", &select_multiply24},
      {"addc", &select_addc},
      {"subc", &select_subc},
      {"madc", &select_madc},
  });
  return kAll;
}

}  // namespace kiln::ptx
