// PTX ISA, "Integer Arithmetic Instructions": what counts, finds and moves bits.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>

#include "tests/support/ptx/operations/elementwise.h"

namespace kiln::ptx {
namespace {

using CountOnes = decltype([]<typename T>(T a) -> std::uint32_t {
  return static_cast<std::uint32_t>(std::popcount(a));
});
using CountLeadingZeros = decltype([]<typename T>(T a) -> std::uint32_t {
  return static_cast<std::uint32_t>(std::countl_zero(a));
});
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
    std::int64_t left = std::abs(std::int64_t{n});
    for (int at = static_cast<int>(base & 31U); at >= 0 && at < 32; at += step) {
      if ((mask >> static_cast<unsigned>(at) & 1U) != 0 && --left == 0)
        return static_cast<std::uint32_t>(at);
    }
    return ~0U;
  }
};
template <typename F, typename T>
struct ToCount {
  static constexpr Handler kHandler = &elementwise<F, std::uint32_t, T>;
};

template <typename F>
void select_count(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(kU32, {type});
  decoder.run_by(type.bits == 64 ? ToCount<F, std::uint64_t>::kHandler
                                 : ToCount<F, std::uint32_t>::kHandler);
}

void select_reverse(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(type, {type});
  decoder.run_by(bits_handler<Reverse, 1>(type));
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
  decoder.run_by(as_shift ? find_bit_handler<true>(type)
                          : find_bit_handler<false>(type));
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
    decoder.run_by(is_signed ? extract_handler<std::int64_t>()
                             : extract_handler<std::uint64_t>());
  else
    decoder.run_by(is_signed ? extract_handler<std::int32_t>()
                             : extract_handler<std::uint32_t>());
}
void select_insert(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.operands(type, {type, type, kU32, kU32});
  decoder.run_by(type.bits == 64
                     ? &elementwise<InsertField, std::uint64_t, std::uint64_t,
                                    std::uint64_t, std::uint32_t, std::uint32_t>
                     : &elementwise<InsertField, std::uint32_t, std::uint32_t,
                                    std::uint32_t, std::uint32_t, std::uint32_t>);
}
void select_mask(Decoder& decoder) {
  const bool clamps = decoder.take_one_of({"wrap", "clamp"}) == 1;
  decoder.take_type();
  decoder.operands(kB32, {kU32, kU32});
  decoder.run_by(clamps ? elementwise_of<MakeMask<true>, std::uint32_t, 2>()
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
  const bool clamps = decoder.take_one_of({"wrap", "clamp"}) == 1;
  const Type type = decoder.take_type();
  decoder.operands(type, {type, kU32});
  decoder.run_by(clamps ? extend_handler<true>(type) : extend_handler<false>(type));
}
void select_find_nth(Decoder& decoder) {
  decoder.take_type();
  decoder.operands(kB32, {kB32, kB32, {Kind::kSigned, 32}});
  decoder.made.run = &elementwise<FindNthSet, std::uint32_t, std::uint32_t,
                                  std::uint32_t, std::int32_t>;
}
}  // namespace

std::span<const Operation> bit_operations() {
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
  });
  return kAll;
}

}  // namespace kiln::ptx
