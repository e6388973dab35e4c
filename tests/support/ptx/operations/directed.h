// Arithmetic rounded to zero, up or down.

#pragma once

#include <string_view>

#include "tests/support/ptx/program.h"

namespace kiln::ptx {

/// For add, sub, mul, div, fma, rcp and sqrt of f32 and f64, by the instruction's
/// rounding, ftz and sat; null for others.
[[nodiscard]] Handler directed_handler(std::string_view opcode, Type type);

}  // namespace kiln::ptx
