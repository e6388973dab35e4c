// Integers in files and messages are little-endian, whatever the machine is.

#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "util/bytes.h"

namespace kiln {

/// The integer at `offset`; the caller has checked that it lies inside `bytes`.
template <std::unsigned_integral T>
[[nodiscard]] T load_le(ByteView bytes, std::size_t offset) {
  std::uint64_t value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;)
    value = value << 8U | std::to_integer<std::uint64_t>(bytes[offset + i]);
  return static_cast<T>(value);
}

template <std::unsigned_integral T>
void append_le(Bytes& out, T value) {
  auto rest = static_cast<std::uint64_t>(value);
  for (std::size_t i = 0; i < sizeof(T); ++i, rest >>= 8U)
    out.push_back(static_cast<std::byte>(rest & 0xFFU));
}

inline void append(Bytes& out, ByteView bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace kiln
