#include "ops/on_device.h"

#include <fmt/format.h>

#include "device/driver.h"
#include "device/stream_device.h"
#include "library/service_parts.h"
#include "util/try.h"

namespace kiln::ops {

Result<const device::PrimaryContext*> context_of(Service& service,
                                                 const Device& device) {
  return ServiceParts::devices_of(service).shared_context(device);
}

Result<void> check_stream(const device::PrimaryContext& context,
                          const device::ContextScope& scope, const Place& place) {
  const auto failed = [&](CUresult result, const char* call) {
    return device::driver_error(
        context.driver().table(), result, call,
        fmt::format("{} on {}", place.operation, device::label_of(place.device)));
  };
  if (scope.result() != CUDA_SUCCESS)
    return failed(scope.result(), scope.call());
  const device::StreamFit fit = device::fit_of(context, place.stream, context.handle());
  if (fit.result != CUDA_SUCCESS)
    return failed(fit.result, "cuStreamGetCtx");
  if (!fit.why_not.empty())
    return refuse("{}: {}", place.operation, fit.why_not);
  return {};
}

}  // namespace kiln::ops
