// What the simulated cuDNN stands on: the real cuDNN and the simulated driver, as
// tables of functions.

#pragma once

#include <cuda.h>

#include <optional>
#include <string>
#include <type_traits>

#include "cudnn/table.h"

#define KILN_SIMULATED_CUDNN_DRIVER(X) \
  X(cuCtxGetCurrent)                   \
  X(cuCtxGetDevice)                    \
  X(cuCtxPushCurrent)                  \
  X(cuCtxPopCurrent)                   \
  X(cuDeviceGetAttribute)              \
  X(cuDeviceGetName)                   \
  X(cuDeviceTotalMem)                  \
  X(cuDriverGetVersion)                \
  X(cuModuleLoadData)                  \
  X(cuModuleUnload)                    \
  X(cuModuleGetFunction)               \
  X(cuLaunchKernel)                    \
  X(cuMemAlloc)                        \
  X(cuMemFree)

namespace kiln::simulated {

namespace cudnn = attention::cudnn;

struct DriverFunctions {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name
#define KILN_MEMBER(name) decltype(&::name) name = nullptr;
  KILN_SIMULATED_CUDNN_DRIVER(KILN_MEMBER)
#undef KILN_MEMBER
};

struct CudnnFunctions {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name and type
#define KILN_MEMBER(name, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  KILN_CUDNN_FUNCTIONS(KILN_MEMBER)
#undef KILN_MEMBER
};

struct Libraries {
  DriverFunctions driver;
  CudnnFunctions cudnn;
};

/// Both, open until the process ends. nullopt after a line on stderr.
[[nodiscard]] std::optional<Libraries> open_libraries(const std::string& driver,
                                                      const std::string& cudnn);

/// cuDNN's 23 properties of a device of that driver, as JSON; written apart from Kiln's
/// own device::describe_device().
[[nodiscard]] std::string properties_of(const DriverFunctions& driver, CUdevice device);

}  // namespace kiln::simulated
