// The only table of the CUDA driver's functions, looked up once per library. Include it
// only where they are called; elsewhere include driver.h.

#pragma once

#include <cuda.h>

#include <filesystem>
#include <string_view>

#include "device/cuda_version.h"
#include "kiln/result.h"

// To add a function, add a line. cuda.h maps a name to its current version
// (cuDeviceTotalMem is cuDeviceTotalMem_v2), for the member and for the symbol.
#define KILN_REQUIRED_DRIVER_FUNCTIONS(X) \
  X(cuInit)                               \
  X(cuDriverGetVersion)                   \
  X(cuGetErrorName)                       \
  X(cuGetErrorString)                     \
  X(cuDeviceGetCount)                     \
  X(cuDeviceGet)                          \
  X(cuDeviceGetName)                      \
  X(cuDeviceGetAttribute)                 \
  X(cuDeviceTotalMem)                     \
  X(cuDeviceCanAccessPeer)                \
  X(cuDevicePrimaryCtxRetain)             \
  X(cuDevicePrimaryCtxRelease)            \
  X(cuCtxGetCurrent)                      \
  X(cuCtxGetDevice)                       \
  X(cuCtxPushCurrent)                     \
  X(cuCtxPopCurrent)                      \
  X(cuThreadExchangeStreamCaptureMode)    \
  X(cuModuleLoadDataEx)                   \
  X(cuModuleUnload)                       \
  X(cuModuleGetFunction)                  \
  X(cuModuleGetGlobal)                    \
  X(cuFuncGetAttribute)                   \
  X(cuFuncSetAttribute)                   \
  X(cuStreamGetCtx)                       \
  X(cuStreamIsCapturing)                  \
  X(cuPointerGetAttributes)               \
  X(cuMemsetD8Async)                      \
  X(cuMemcpyHtoDAsync)                    \
  X(cuLaunchKernel)

// Null if the driver is too old: cuDeviceGetUuid_v2 came with CUDA 11.4,
// cuLaunchKernelEx with 11.8, cuFuncGetName with 12.3, the others with 12.4.
#define KILN_OPTIONAL_DRIVER_FUNCTIONS(X) \
  X(cuDeviceGetUuid)                      \
  X(cuModuleGetFunctionCount)             \
  X(cuModuleEnumerateFunctions)           \
  X(cuFuncGetName)                        \
  X(cuFuncGetParamInfo)                   \
  X(cuLaunchKernelEx)

namespace kiln::device {

/// Never destroyed, so that kernels in static storage may still use it at exit.
struct DriverTable {
  std::filesystem::path path;
  CudaVersion version;
// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name
#define KILN_DRIVER_MEMBER(function) decltype(&::function) function = nullptr;
  KILN_REQUIRED_DRIVER_FUNCTIONS(KILN_DRIVER_MEMBER)
  KILN_OPTIONAL_DRIVER_FUNCTIONS(KILN_DRIVER_MEMBER)
#undef KILN_DRIVER_MEMBER
};

/// The only conversion from CUresult: kDevice, "cuInit: CUDA_ERROR_NO_DEVICE (100): no
/// CUDA-capable device is detected", then "; " and the remedy if one is known. `on`
/// says what the call was for; "": nothing.
[[nodiscard]] tl::unexpected<Error> driver_error(const DriverTable& table,
                                                 CUresult result, std::string_view call,
                                                 std::string_view on = "");

/// The same as a result, which CUDA_SUCCESS is no error of.
[[nodiscard]] inline Result<void> driver_result(const DriverTable& table,
                                                CUresult result, std::string_view call,
                                                std::string_view on = "") {
  if (result == CUDA_SUCCESS)
    return {};
  return driver_error(table, result, call, on);
}

/// For destructors, which cannot return an error: logs a failure at level debug.
/// Ignores success, and a driver that has shut down with the process.
void log_failure(const DriverTable& table, CUresult result, std::string_view call,
                 std::string_view on = "") noexcept;

/// Errors: kDevice.
[[nodiscard]] Result<int> device_attribute(const DriverTable& table, CUdevice device,
                                           CUdevice_attribute which);

}  // namespace kiln::device
