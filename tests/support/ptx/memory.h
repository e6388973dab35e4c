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

/// The same of one lane, at an address of the space (kGlobal: generic).
std::byte* reach_one(const Lanes& lanes, const Instruction& instruction, unsigned lane,
                     Space space, std::uint64_t address, std::size_t bytes,
                     Access access);

}  // namespace kiln::ptx
