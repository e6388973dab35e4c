// Where the lanes of an access lie in this process, after every check of a device: of
// bounds, of alignment, and what compute-sanitizer's tools look for besides.

#pragma once

#include <array>

#include "tests/support/ptx/machine.h"

namespace kiln::ptx {

using Access = Races::Access;

struct Reach {
  std::array<std::byte*, kLanes> at{};
};

/// `bytes` a lane at `base` + the instruction's offset, for the lanes of the mask.
/// Throws Fault.
Reach reach(const Lanes& lanes, const Instruction& instruction, const Operand& base,
            std::size_t bytes, Access access);

/// One lane's access.
struct Touch {
  unsigned lane = 0;
  Space space = Space::kGeneric;
  std::uint64_t at = 0;
  std::size_t bytes = 0;
  Access access = Access::kRead;
  std::size_t alignment = 0;  // 0: as many bytes
};

/// Throws Fault where the access is not at a multiple of its alignment.
void require_aligned(const Lanes& lanes, const Instruction& instruction,
                     const Touch& touch);

/// The same as reach() of one lane.
std::byte* reach_one(const Lanes& lanes, const Instruction& instruction, Touch touch);

}  // namespace kiln::ptx
