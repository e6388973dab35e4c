// Handlers that compute each lane by itself: dst[lane] = F(src[lane]...).

#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/support/ptx/decoder.h"
#include "tests/support/ptx/lanes.h"

namespace kiln::ptx {

template <typename F, typename D, typename... S>
void elementwise(Lanes& lanes, const Instruction& instruction) {
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    D* const to = lanes.at<D>(instruction.operands[0]);
    const std::tuple from{
        static_cast<const S*>(lanes.at<S>(instruction.operands[1 + kIndex]))...};
    for_each_lane(lanes.mask, [&](unsigned lane) {
      to[lane] = F{}(std::get<kIndex>(from)[lane]...);
    });
  }
  (std::index_sequence_for<S...>());
}

/// Of two elements a lane.
template <typename F, typename D, typename... S>
void elementwise_packed(Lanes& lanes, const Instruction& instruction) {
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    D* const to = lanes.at<D>(instruction.operands[0]);
    const std::tuple from{
        static_cast<const S*>(lanes.at<S>(instruction.operands[1 + kIndex]))...};
    for_each_lane(lanes.mask, [&](unsigned lane) {
      for (unsigned at = 2 * lane; at < 2 * lane + 2; ++at)
        to[at] = F{}(std::get<kIndex>(from)[at]...);
    });
  }
  (std::index_sequence_for<S...>());
}

/// The handler for so many sources of one type, which is also the result's.
template <typename F, typename T, std::size_t kSources>
constexpr Handler elementwise_of() {
  if constexpr (kSources == 1)
    return &elementwise<F, T, T>;
  else if constexpr (kSources == 2)
    return &elementwise<F, T, T, T>;
  else
    return &elementwise<F, T, T, T, T>;
}
template <typename F, typename T, std::size_t kSources>
constexpr Handler packed_of() {
  if constexpr (kSources == 1)
    return &elementwise_packed<F, T, T>;
  else if constexpr (kSources == 2)
    return &elementwise_packed<F, T, T, T>;
  else
    return &elementwise_packed<F, T, T, T, T>;
}

/// By width and sign; null for what is no integer of 16 bits or more.
template <typename F, std::size_t kSources>
constexpr Handler integer_handler(Type type) {
  const bool is_signed = type.kind == Kind::kSigned;
  if (!type.is_integer())
    return nullptr;
  if (type.count == 2)
    return type.bits != 16 ? nullptr
           : is_signed     ? packed_of<F, std::int16_t, kSources>()
                           : packed_of<F, std::uint16_t, kSources>();
  switch (type.bits) {
    case 16:
      return is_signed ? elementwise_of<F, std::int16_t, kSources>()
                       : elementwise_of<F, std::uint16_t, kSources>();
    case 32:
      return is_signed ? elementwise_of<F, std::int32_t, kSources>()
                       : elementwise_of<F, std::uint32_t, kSources>();
    case 64:
      return is_signed ? elementwise_of<F, std::int64_t, kSources>()
                       : elementwise_of<F, std::uint64_t, kSources>();
    default:
      return nullptr;
  }
}

/// Without a sign: bits.
template <typename F, std::size_t kSources>
constexpr Handler bits_handler(Type type) {
  return integer_handler<F, kSources>(
      {Kind::kBits, static_cast<std::uint8_t>(type.bits * type.count)});
}

/// In which products and sums of T wrap without overflow.
template <typename T>
using Wrapping =
    std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;

}  // namespace kiln::ptx
