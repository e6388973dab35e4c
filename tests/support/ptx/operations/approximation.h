// Approximations, with the errors that the ISA permits where the schedule is noisy.

#pragma once

#include <string_view>

#include "tests/support/ptx/lanes.h"

namespace kiln::ptx {

/// For ex2, lg2, rcp, rsqrt, sqrt, sin, cos and tanh with .approx.
void choose_approximation(Instruction& made, std::string_view opcode, Type type);

/// div.approx.f32 and div.full.f32.
void divide_approximately(Lanes& lanes, const Instruction& instruction);

}  // namespace kiln::ptx
