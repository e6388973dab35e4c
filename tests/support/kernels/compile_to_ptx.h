// PTX and machine code of any architecture by the real NVRTC, in the process of the
// test.

#pragma once

#include <string>
#include <vector>

#include "device/architecture.h"
#include "kiln/device.h"
#include "kiln/result.h"

namespace kiln::test {

/// Whether there is an NVRTC to compile with.
[[nodiscard]] bool can_compile_ptx();

/// Without a header, as C++17. Errors: those of NVRTC, and kUnavailable where there is
/// none.
[[nodiscard]] Result<std::vector<std::byte>> compile_to_image(
    const std::string& source, ComputeCapability capability, device::ImageKind kind,
    const std::vector<std::string>& options = {});

/// The same as PTX.
[[nodiscard]] Result<std::string> compile_to_ptx(const std::string& source,
                                                 ComputeCapability capability);

}  // namespace kiln::test
