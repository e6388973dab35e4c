// Which device a stream is of, or a context, and whether work may go there.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "device/driver.h"
#include "device/driver_table.h"
#include "device/primary_context.h"
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

/// "device 1 (NVIDIA H100)", or "another context of device 0 (…)", for a context that
/// is not `ours`. Whatever cannot be told is left out.
[[nodiscard]] std::string describe_owner(const PrimaryContext& ours, CUcontext other);

/// Whether `stream` is being captured, or work on it would end another's capture. Of a
/// default stream of the current context. Errors: kDevice, naming `on`.
[[nodiscard]] Result<bool> is_capturing(const DriverTable& driver, CUstream_st* stream,
                                        std::string_view on);

struct StreamFit {
  CUresult asked = CUDA_SUCCESS;  // of cuStreamGetCtx
  std::string why_not;            // empty: the stream takes work of that context
};

/// Whether `stream` takes work of `context`, which is current now; `before` was before
/// (ContextScope::before()): that is whose the default streams are, if any. Calls
/// nothing that a stream capture forbids.
[[nodiscard]] StreamFit fit_of(const PrimaryContext& context, CUstream stream,
                               CUcontext before);

}  // namespace kiln::device
