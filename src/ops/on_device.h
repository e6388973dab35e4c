// The calling thread on an operation's device, for as long as the call takes.

#pragma once

#include <memory>

#include "device/context_scope.h"
#include "device/primary_context.h"
#include "kiln/device.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln::ops {

/// The primary context of `device`, which is one of the service's. Errors: as
/// Service::get() has for a device.
[[nodiscard]] Result<std::shared_ptr<const device::PrimaryContext>> context_of(
    Service& service, const Device& device);

/// Whether `scope` could be entered and `stream` takes work of its device. Errors:
/// kInvalidArgument for a stream of another context, kDevice.
[[nodiscard]] Result<void> check_stream(const device::PrimaryContext& context,
                                        const device::ContextScope& scope,
                                        CUstream_st* stream);

/// What `work` returns. The device's primary context is current to the thread in it, so
/// that a null stream is one of that device; afterwards the caller's own is again.
template <typename Work>
[[nodiscard]] Result<void> on_device(Service& service, const Device& device,
                                     CUstream_st* stream, const Work& work) {
  const auto context = context_of(service, device);
  if (!context)
    return tl::unexpected(context.error());
  const device::ContextScope scope(**context);
  if (auto fits = check_stream(**context, scope, stream); !fits)
    return fits;
  return work();
}

}  // namespace kiln::ops
