// The functions that every device has (CUDA C++ Programming Guide, "Formatted Output",
// "Assertion", "Dynamic Global Memory Allocation"; CUDA's PTX Interoperability guide,
// "System Calls").

#pragma once

#include <string_view>

#include "tests/support/ptx/program.h"

namespace kiln::ptx {

/// vprintf, __assertfail, malloc and free. Operands: the region of the result, then
/// those of the arguments. Null for others.
[[nodiscard]] Handler builtin_function(std::string_view name);

}  // namespace kiln::ptx
