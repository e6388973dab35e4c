// Inputs at the edges of their types and at random, always the same.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "tests/unit/ptx/one_instruction.h"

namespace kiln::ptx::test {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
/// One f16 or bf16.
struct H16 {
  U16 bits;
};

template <typename T>
std::vector<U64> edges() {
  constexpr U64 kSign = U64{1} << (8 * sizeof(T) - 1);
  if constexpr (std::is_same_v<T, float>)
    return {0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000,
            0x7fc00000, 0x7fffffff, 0xffc00001, 0x7fa00000, 0x00000001, 0x80000001,
            0x007fffff, 0x00800000, 0x7f7fffff, 0x3f000000, 0x40400000, 0x4f000000,
            0x33800000, 0x42fe0000, 0xc3160000, 0x41200000};
  if constexpr (std::is_same_v<T, double>)
    return {0,
            kSign,
            0x3ff0000000000000,
            0xbff0000000000000,
            0x3fe0000000000000,
            0x4008000000000000,
            0x7fefffffffffffff,
            1,
            0x000fffffffffffff,
            0x37a16c262777579c,  // 1e-40, a subnormal float
            0x41edcd6500000000,  // 4e9
            0x43e158e460913d00,  // 1e19
            0x7ff0000000000000,
            0xfff0000000000000,
            0x7ff8000000000000,
            0xfff8000000000001,
            0x7ff4000000000000};
  if constexpr (std::is_same_v<T, H16>)
    return {0x0000, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00,
            0x7fff, 0xfe01, 0x0001, 0x8001, 0x0400, 0x03ff, 0x7bff,
            0x3800, 0x3f80, 0x7f80, 0xff80, 0x7fc0, 0x0080};
  return {0, 1, 2, 31, 32, 33, 64, 0x55, ~U64{0}, kSign, kSign - 1};
}

template <typename T>
T as_value(U64 bits) {
  T value{};
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Every pair of edges, then any bits, numbers of every size, and floats of like sizes,
/// whose sums are rounded.
template <typename T>
const Inputs<T>& of_every_kind() {
  static const auto made = [] {
    std::mt19937_64 random(3);
    const auto known = edges<T>();
    Inputs<T> all;
    for (const U64 a : known) {
      for (const U64 b : known)
        all.push_back({as_value<T>(a), as_value<T>(b),
                       as_value<T>(known[random() % known.size()])});
    }
    while (all.size() < 1024) {
      auto& each = all.emplace_back();
      for (T& one : each) {
        const bool is_any = random() % 2 == 0;
        const U64 bits = random();
        const U64 number = random();
        if constexpr (std::is_floating_point_v<T>) {
          const double size = std::ldexp(1 + 0x1p-13 * double(number % 8192),
                                         int(number / 8192 % 32) - 16);
          one = is_any ? as_value<T>(bits)
                       : static_cast<T>(number >> 63U != 0 ? size : -size);
        } else {
          one = as_value<T>(
              is_any ? bits : bits >> (64 - 8 * sizeof(T)) >> number % (8 * sizeof(T)));
        }
      }
      if constexpr (std::is_floating_point_v<T>)
        each[1] = random() % 4 == 0 ? static_cast<T>(each[0] * T(0.37)) : each[1];
    }
    return all;
  }();
  return made;
}

}  // namespace kiln::ptx::test
