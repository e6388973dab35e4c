// The calling thread on an operation's device, for as long as the call takes.

#pragma once

#include <string_view>

#include "device/context_scope.h"
#include "device/primary_context.h"
#include "kiln/device.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln::ops {

/// An operation's name, or its first kernel's, for messages; where and in which stream.
struct Place {
  std::string_view what;
  const Device& device;
  CUstream_st* stream;
};

/// The primary context of `device`, which is one of the service's. Good as long as the
/// service. Errors: as Service::get() has for a device.
[[nodiscard]] Result<const device::PrimaryContext*> context_of(Service& service,
                                                               const Device& device);

/// Whether `scope` could be entered and the stream takes work of its device. Errors:
/// kInvalidArgument for a stream of another context, kDevice.
[[nodiscard]] Result<void> check_stream(const device::PrimaryContext& context,
                                        const device::ContextScope& scope,
                                        const Place& place);

/// What `work` returns. The device's primary context is current to the thread in it, so
/// that a null stream is one of that device; afterwards the caller's own is again.
template <typename Work>
[[nodiscard]] Result<void> on_device(Service& service, const Place& place,
                                     const Work& work) {
  const auto context = context_of(service, place.device);
  if (!context)
    return tl::unexpected(context.error());
  const device::ContextScope scope(**context);
  if (auto fits = check_stream(**context, scope, place); !fits)
    return fits;
  return work();
}

}  // namespace kiln::ops
