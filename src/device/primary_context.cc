#include "device/primary_context.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/context_scope.h"
#include "device/driver_table.h"
#include "util/try.h"

namespace kiln::device {
namespace {

Result<LaunchLimits> limits_of(const DriverTable& driver, CUdevice device) {
  const auto ask = [&](CUdevice_attribute which) -> Result<std::uint32_t> {
    const int value = KILN_TRY(device_attribute(driver, device, which));
    return static_cast<std::uint32_t>(std::max(0, value));
  };
  LaunchLimits limits;
  limits.grid = {KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)),
                 KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)),
                 KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z))};
  limits.block = {KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)),
                  KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)),
                  KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z))};
  limits.shared_bytes = KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
  limits.shared_optin_bytes =
      std::max(limits.shared_bytes,
               KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)));
  limits.has_cooperative_launch =
      KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)) != 0;
  return limits;
}

}  // namespace

PrimaryContext::PrimaryContext(Driver driver, Device device)
    : driver_(std::move(driver)), device_(std::move(device)) {}

Result<std::shared_ptr<const PrimaryContext>> PrimaryContext::retain(
    const Driver& driver, Device device) {
  const std::shared_ptr<PrimaryContext> made(
      new PrimaryContext(driver, std::move(device)));
  const DriverTable& table = driver.table();
  const std::string on = label_of(made->device_);
  KILN_TRY(driver_result(table, table.cuInit(0), "cuInit", on));
  KILN_TRY(driver_result(table,
                         table.cuDeviceGet(&made->cu_device_, made->device_.ordinal),
                         "cuDeviceGet", on));
  made->limits_ = KILN_TRY(limits_of(table, made->cu_device_));
  const RelaxedCapture relaxed(table);
  CUcontext retained = nullptr;
  KILN_TRY(driver_result(table,
                         table.cuDevicePrimaryCtxRetain(&retained, made->cu_device_),
                         "cuDevicePrimaryCtxRetain", on));
  made->handle_ = retained;
  return made;
}

PrimaryContext::~PrimaryContext() {
  if (handle_ == nullptr || !is_of_this_process())
    return;
  const DriverTable& table = driver_.table();
  log_failure(table, table.cuDevicePrimaryCtxRelease(cu_device_),
              "cuDevicePrimaryCtxRelease");
}

std::string label_of(const Device& device) {
  return fmt::format("device {} ({})", device.ordinal, device.name);
}

}  // namespace kiln::device
