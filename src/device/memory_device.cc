#include "device/memory_device.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "device/driver_table.h"
#include "device/stream_device.h"
#include "util/try.h"

namespace kiln::device {
namespace {

// The driver leaves zeros for a pointer that it does not know.
struct MemoryOwner {
  CUcontext context = nullptr;  // null also for mapped memory and pools
  std::uint32_t type = 0;       // CUmemorytype; 0: not CUDA memory
  std::uint32_t is_managed = 0;
  int device = -1;
};

Result<MemoryOwner> owner_of(const PrimaryContext& context, const void* pointer) {
  MemoryOwner owner;
  std::array<CUpointer_attribute, 4> names{
      CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  std::array<void*, 4> values{&owner.context, &owner.type, &owner.is_managed,
                              &owner.device};
  const DriverTable& driver = context.driver().table();
  if (const CUresult result = driver.cuPointerGetAttributes(
          static_cast<unsigned>(names.size()), names.data(), values.data(),
          reinterpret_cast<CUdeviceptr>(pointer));
      result != CUDA_SUCCESS)
    return driver_error(driver, result, "cuPointerGetAttributes",
                        label_of(context.device()));
  return owner;
}

bool is_devices_own(const MemoryOwner& owner) {
  return owner.type == CU_MEMORYTYPE_DEVICE && owner.is_managed == 0;
}

}  // namespace

Result<std::string> why_not_memory_of(const PrimaryContext& context,
                                      const void* pointer) {
  const MemoryOwner owner = KILN_TRY(owner_of(context, pointer));
  if (owner.type == 0) {
    const bool reads_pageable =
        KILN_TRY(device_attribute(context.driver().table(), context.device().ordinal,
                                  CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)) != 0;
    return reads_pageable ? "" : "it is no memory that the driver knows";
  }
  if (!is_devices_own(owner) || owner.context == context.handle())
    return "";
  if (owner.context != nullptr)
    return fmt::format("it is memory of {}", describe_owner(context, owner.context));
  if (owner.device == context.device().ordinal)
    return "";
  return fmt::format("it is memory of device {}", owner.device);
}

Result<bool> is_host_readable(const PrimaryContext& context, const void* pointer) {
  return !is_devices_own(KILN_TRY(owner_of(context, pointer)));
}

}  // namespace kiln::device
