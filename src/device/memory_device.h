// Whose memory a pointer is: what a kernel of one device may be handed.

#pragma once

#include <string>

#include "device/primary_context.h"
#include "kiln/result.h"

namespace kiln::device {

/// Why work of `context` cannot use the memory at `pointer`: "it is memory of device 1
/// (NVIDIA H100)", "it is no device memory"; empty where it can. Managed memory and
/// host memory that the driver knows are everybody's, and all of the host's where the
/// device reads pageable memory. Calls nothing that a stream capture forbids.
/// Errors: kDevice. Thread-safe.
[[nodiscard]] Result<std::string> why_not_memory_of(const PrimaryContext& context,
                                                    const void* pointer);

/// Whether the host can read what is at `pointer`: false for a device's own memory.
/// Errors: kDevice. Thread-safe.
[[nodiscard]] Result<bool> is_host_readable(const PrimaryContext& context,
                                            const void* pointer);

}  // namespace kiln::device
