// What a handler works on: the lanes of a warp that run an instruction.

#pragma once

#include <bit>
#include <cstring>
#include <string>

#include "tests/support/ptx/program.h"

namespace kiln::ptx {

class Warp;
class Block;

/// Errors of approximations as the ISA permits them; drawn from a seed (xorshift64*).
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL | 1U) {}
  std::uint64_t draw() {
    state_ ^= state_ >> 12U;
    state_ ^= state_ << 25U;
    state_ ^= state_ >> 27U;
    return state_ * 0x2545f4914f6cdd1dULL;
  }
  /// Below `end`.
  std::uint64_t below(std::uint64_t end) { return (draw() >> 11U) % end; }
  /// Within so many units in the last place.
  float around(float value, int ulps) {
    if (!(value - value == 0) || value == 0)
      return value;
    const auto offset =
        static_cast<std::uint32_t>(below(2 * static_cast<unsigned>(ulps) + 1)) -
        static_cast<std::uint32_t>(ulps);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + offset);
  }

 private:
  std::uint64_t state_;
};

struct Lanes {
  std::byte* frame = nullptr;
  std::uint32_t mask = 0;
  Warp* warp = nullptr;
  Block* block = nullptr;
  Noise* noise = nullptr;  // null: approximations are as exact as their type

  template <typename T>
  [[nodiscard]] T* at(const Operand& operand) const {
    return reinterpret_cast<T*>(frame + operand.at);
  }
  [[nodiscard]] std::uint32_t predicate(const Operand& operand) const {
    const std::uint32_t value = *at<std::uint32_t>(operand);
    return operand.is_negated ? ~value : value;
  }
  /// Of the lanes of the mask.
  void set_predicate(const Operand& operand, std::uint32_t value) const {
    if (operand.is_dropped())
      return;
    auto* const all = at<std::uint32_t>(operand);
    *all = (*all & ~mask) | ((operand.is_negated ? ~value : value) & mask);
  }
};

/// Of a register of 32 or 64 bits.
inline std::uint64_t register_bits(const Lanes& lanes, const Operand& operand,
                                   unsigned lane) {
  return operand.bytes == 8 ? lanes.at<std::uint64_t>(operand)[lane]
                            : lanes.at<std::uint32_t>(operand)[lane];
}

/// The lowest lane of a mask that has some.
inline unsigned first_lane(std::uint32_t mask) {
  return static_cast<unsigned>(std::countr_zero(mask));
}

/// The next loop is over lanes, none of which reads what another one writes.
#if defined(__clang__)
#define KILN_LANES_SIDE_BY_SIDE _Pragma("clang loop vectorize(assume_safety)")
#else
#define KILN_LANES_SIDE_BY_SIDE _Pragma("GCC ivdep")
#endif

/// `visit(lane)` for each lane of the mask.
template <typename Visit>
inline void for_each_lane(std::uint32_t mask, const Visit& visit) {
  if (mask == kAllLanes) {
    KILN_LANES_SIDE_BY_SIDE
    for (unsigned lane = 0; lane < kLanes; ++lane) visit(lane);
    return;
  }
  for (std::uint32_t left = mask; left != 0; left &= left - 1) visit(first_lane(left));
}

/// One value in all lanes of the mask.
template <typename T>
void set_all(const Lanes& lanes, const Operand& operand, T value) {
  T* const to = lanes.at<T>(operand);
  for_each_lane(lanes.mask, [&](unsigned lane) { to[lane] = value; });
}

/// The lanes of the mask whose value is not that of its first lane.
template <typename T>
std::uint32_t lanes_unlike_the_first(std::uint32_t mask, const T* values) {
  std::uint32_t unlike = 0;
  for_each_lane(mask, [&](unsigned lane) {
    unlike |= std::uint32_t{values[lane] != values[first_lane(mask)]} << lane;
  });
  return unlike;
}

/// Ends a launch, as an error of the device does.
struct Fault {
  int result = 0;  // a CUresult
  std::string why;
};

}  // namespace kiln::ptx
