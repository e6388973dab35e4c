// Which device a pointer's memory belongs to, and whether a context may use it.

#pragma once

#include <string>

#include "device/primary_context.h"
#include "kiln/result.h"

namespace kiln::device {

/// Why kernels of `context` cannot use the memory at `pointer`: "it is memory of device
/// 1 (NVIDIA H100)", "it is no memory that the driver knows"; empty if they can. They
/// can always use managed memory and host memory that the driver knows, and any host
/// memory if the device can access pageable memory. Calls nothing that a stream capture
/// forbids. Errors: kDevice. Thread-safe.
[[nodiscard]] Result<std::string> why_not_memory_of(const PrimaryContext& context,
                                                    const void* pointer);

/// Whether the host can read the memory at `pointer`; false for a device's own memory.
/// Errors: kDevice. Thread-safe.
[[nodiscard]] Result<bool> is_host_readable(const PrimaryContext& context,
                                            const void* pointer);

}  // namespace kiln::device
