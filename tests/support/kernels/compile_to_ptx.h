// PTX of any architecture by the real NVRTC, in the process of the test.

#pragma once

#include <string>

#include "kiln/device.h"
#include "kiln/result.h"

namespace kiln::test {

/// Whether there is an NVRTC to compile with.
[[nodiscard]] bool can_compile_ptx();

/// Errors: those of NVRTC, and kUnavailable where there is none.
[[nodiscard]] Result<std::string> compile_to_ptx(const std::string& source,
                                                 ComputeCapability capability);

}  // namespace kiln::test
