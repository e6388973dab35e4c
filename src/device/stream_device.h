// Which device a stream or a context belongs to, and whether it accepts work.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "device/driver.h"
#include "device/driver_table.h"
#include "device/primary_context.h"
#include "kiln/result.h"

namespace kiln::device {

/// Whether `stream` stands for a stream of the thread's current context: null,
/// CU_STREAM_LEGACY, CU_STREAM_PER_THREAD.
[[nodiscard]] bool is_default_stream(CUstream stream);

/// The device of `context`; nullopt if the driver does not tell. Does not change the
/// thread's current context.
[[nodiscard]] std::optional<CUdevice> device_of(const DriverTable& driver,
                                                CUcontext context);

/// The ordinal of the device whose context owns `stream`; nullopt for a default stream
/// if no context is current. Calls nothing that a stream capture forbids.
/// Errors: kDevice. Thread-safe.
[[nodiscard]] Result<std::optional<int>> device_of(const Driver& driver,
                                                   CUstream_st* stream);

/// Describes a context that is not `ours`: "device 1 (NVIDIA H100)", "another context
/// of device 0 (…)", or only "another context" if the driver does not tell.
[[nodiscard]] std::string describe_owner(const PrimaryContext& ours, CUcontext other);

/// Whether `stream` is being captured, or work on it would end another stream's
/// capture. A default stream is the current context's. Errors: kDevice, naming `on`.
[[nodiscard]] Result<bool> is_capturing(const DriverTable& driver, CUstream_st* stream,
                                        std::string_view on);

struct StreamFit {
  CUresult result = CUDA_SUCCESS;  // of cuStreamGetCtx
  std::string why_not;             // empty: the stream accepts work of that context
};

/// Whether `stream` accepts work of `context`, which is current. `before`
/// (ContextScope::before()) was current before it and owns the default streams; null if
/// none was. Calls nothing that a stream capture forbids.
[[nodiscard]] StreamFit fit_of(const PrimaryContext& context, CUstream stream,
                               CUcontext before);

}  // namespace kiln::device
