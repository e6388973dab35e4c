// Makes an operation's device current to the calling thread during a call.

#pragma once

#include <string_view>

#include "device/context_scope.h"
#include "device/primary_context.h"
#include "kiln/device.h"
#include "kiln/result.h"
#include "kiln/service.h"
#include "util/try.h"

namespace kiln::ops {

/// Where an operation runs.
struct Place {
  std::string_view operation;  // its name, for messages
  const Device& device;
  CUstream_st* stream;
};

/// The primary context of `device`, a device of the service. Valid as long as the
/// service. Errors: those of Service::get() for a device.
[[nodiscard]] Result<const device::PrimaryContext*> context_of(Service& service,
                                                               const Device& device);

/// Checks that `scope` was entered and that the stream belongs to its context. Errors:
/// kInvalidArgument for a stream of another context, kDevice.
[[nodiscard]] Result<void> check_stream(const device::PrimaryContext& context,
                                        const device::ContextScope& scope,
                                        const Place& place);

/// Returns what `work` returns. During `work` the device's primary context is current
/// to the thread, so a null stream belongs to that device. Afterwards the caller's
/// context is current again.
template <typename Work>
[[nodiscard]] Result<void> on_device(Service& service, const Place& place,
                                     const Work& work) {
  const device::PrimaryContext& context = *KILN_TRY(context_of(service, place.device));
  const device::ContextScope scope(context);
  KILN_TRY(check_stream(context, scope, place));
  return work();
}

}  // namespace kiln::ops
