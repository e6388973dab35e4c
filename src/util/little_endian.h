// Integers in files and messages are little-endian, whatever the machine is.

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>

#include "util/bytes.h"

namespace kiln {

/// `value`, with its bytes reversed on a big-endian machine. No loop on a little-endian
/// one: compilers do not optimize a loop that assembles an integer from bytes, and
/// every hit reads hundreds of integers.
template <std::unsigned_integral T>
[[nodiscard]] T little_endian(T value) {
  if constexpr (std::endian::native == std::endian::little)
    return value;
  auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  std::reverse(bytes.begin(), bytes.end());
  return std::bit_cast<T>(bytes);
}

/// The integer at `offset`; the caller has checked that it lies inside `bytes`.
template <std::unsigned_integral T>
[[nodiscard]] T load_le(ByteView bytes, std::size_t offset) {
  T value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return little_endian(value);
}

inline void append(Bytes& out, ByteView bytes) {
  // Not insert(): g++ 12 gives a false overflow warning for it.
  const auto end = static_cast<std::ptrdiff_t>(out.size());
  out.resize(out.size() + bytes.size());
  std::copy(bytes.begin(), bytes.end(), out.begin() + end);
}

template <std::unsigned_integral T>
void append_le(Bytes& out, T value) {
  const T stored = little_endian(value);
  append(out, std::as_bytes(std::span(&stored, 1)));
}

}  // namespace kiln
