#include "ops/on_device.h"

#include <fmt/format.h>

#include "device/driver.h"
#include "device/stream_device.h"
#include "library/service_parts.h"

namespace kiln::ops {

Result<std::shared_ptr<const device::PrimaryContext>> context_of(Service& service,
                                                                 const Device& device) {
  return ServiceParts::devices_of(service).context(device);
}

Result<void> check_stream(const device::PrimaryContext& context,
                          const device::ContextScope& scope, CUstream_st* stream) {
  const device::DriverTable& driver = context.driver().table();
  const std::string label = device::label_of(context.device());
  if (scope.result() != CUDA_SUCCESS)
    return device::driver_error(driver, scope.result(), scope.call(), label);
  const device::StreamFit fit = device::fit_of(context, stream, context.handle());
  if (fit.asked != CUDA_SUCCESS)
    return device::driver_error(driver, fit.asked, "cuStreamGetCtx", label);
  if (!fit.why_not.empty())
    return fail(ErrorCode::kInvalidArgument, fit.why_not);
  return {};
}

}  // namespace kiln::ops
