// Which device a stream is of, or a context.

#pragma once

#include <optional>

#include "device/driver.h"
#include "device/driver_table.h"
#include "kiln/result.h"

namespace kiln::device {

/// Whether `stream` means a stream of the context that is current to the thread: null,
/// CU_STREAM_LEGACY, CU_STREAM_PER_THREAD.
[[nodiscard]] bool is_default_stream(CUstream stream);

/// The device of `context`; nullopt where the driver does not tell. What is current to
/// the thread stays so.
[[nodiscard]] std::optional<CUdevice> device_of(const DriverTable& driver,
                                                CUcontext context);

/// The ordinal of the device whose context `stream` belongs to; nullopt for a default
/// stream where no context is current. Calls nothing that a stream capture forbids.
/// Errors: kDevice. Thread-safe.
[[nodiscard]] Result<std::optional<int>> device_of(const Driver& driver,
                                                   CUstream_st* stream);

}  // namespace kiln::device
