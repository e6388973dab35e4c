// The one context of a device that all its users share.

#include "tests/support/simulated_driver/abi_functions.h"

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    Device* const device = simulator.device(ordinal);
    if (context == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (device == nullptr)
      return CUDA_ERROR_INVALID_DEVICE;
    if (!simulator.is_active(device->primary)) {
      const auto made = simulator.open_context(ordinal, device->flags, true);
      if (!made)
        return made.error();
    }
    ++device->retained;
    *context = device->primary;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  return with_device(__func__, ordinal, [](Simulator& simulator, Device& device) {
    if (device.retained == 0)
      return CUDA_ERROR_INVALID_CONTEXT;
    --device.retained;
    if (device.retained == 0 && simulator.is_active(device.primary))
      simulator.close_context(device.primary);
    return CUDA_SUCCESS;
  });
}

// Those who retained it have to release it all the same.
CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  return with_device(__func__, ordinal, [](Simulator& simulator, const Device& device) {
    if (simulator.is_active(device.primary))
      simulator.close_context(device.primary);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
  return with_device(__func__, ordinal, [&](Simulator& simulator, Device& device) {
    device.flags = flags;
    if (simulator.is_active(device.primary))
      simulator.contexts.find(device.primary)->flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    const Device* const device = simulator.device(ordinal);
    if (flags == nullptr || active == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (device == nullptr)
      return CUDA_ERROR_INVALID_DEVICE;
    *flags = device->flags;
    *active = simulator.is_active(device->primary) ? 1 : 0;
    return CUDA_SUCCESS;
  });
}
