// The CUDA driver's functions, looked up once a library: the one table of them. Include
// this only where they are called; everybody else includes driver.h.

#pragma once

#include <cuda.h>

#include <filesystem>
#include <string_view>

#include "device/cuda_version.h"
#include "kiln/result.h"

// To extend: add a line. cuda.h maps a name to its current version (cuDeviceTotalMem is
// cuDeviceTotalMem_v2), in the member's name and in the symbol's alike.
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
  X(cuDeviceCanAccessPeer)

// Null where the driver is too old for it.
#define KILN_OPTIONAL_DRIVER_FUNCTIONS(X) X(cuDeviceGetUuid)

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

/// The one conversion from CUresult: kDevice, "cuInit: CUDA_ERROR_NO_DEVICE (100): no
/// CUDA-capable device is detected". `on` says what the call was for, "" for nothing.
[[nodiscard]] tl::unexpected<Error> driver_error(const DriverTable& table,
                                                 CUresult result, std::string_view call,
                                                 std::string_view on = "");

}  // namespace kiln::device
