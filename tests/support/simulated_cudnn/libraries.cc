#include "tests/support/simulated_cudnn/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#define KILN_TEXT_OF(name) #name
#define KILN_SYMBOL_OF(name) KILN_TEXT_OF(name)  // after cuda.h's own macros

namespace kiln::simulated {
namespace {

void* open_library(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)  // NOLINTNEXTLINE(concurrency-mt-unsafe): one a thread
    fmt::print(stderr, "simulated cuDNN: {}\n", ::dlerror());
  return library;
}

template <typename Function>
bool look_up(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
  if (function == nullptr)
    fmt::print(stderr, "simulated cuDNN: no {}\n", symbol);
  return function != nullptr;
}

}  // namespace

std::optional<Libraries> open_libraries(const std::string& driver,
                                        const std::string& cudnn) {
  // Before cuDNN, which looks for a library of its soname.
  if (open_library(KILN_SIMULATED_CUDNN_NO_DEVICE_DRIVER) == nullptr)
    return std::nullopt;
  void* const driver_library = open_library(driver);
  void* const cudnn_library = open_library(cudnn);
  if (driver_library == nullptr || cudnn_library == nullptr)
    return std::nullopt;
  Libraries all;
  bool is_whole = true;
#define KILN_LOOK_UP(name) \
  is_whole = look_up(driver_library, KILN_SYMBOL_OF(name), all.driver.name) && is_whole;
  KILN_SIMULATED_CUDNN_DRIVER(KILN_LOOK_UP)
#undef KILN_LOOK_UP
#define KILN_LOOK_UP(name, ...) \
  is_whole = look_up(cudnn_library, #name, all.cudnn.name) && is_whole;
  KILN_CUDNN_FUNCTIONS(KILN_LOOK_UP)
#undef KILN_LOOK_UP
  return is_whole ? std::optional(all) : std::nullopt;
}

std::string properties_of(const DriverFunctions& driver, CUdevice device) {
  const auto ask = [&](CUdevice_attribute which) {
    int value = 0;
    static_cast<void>(driver.cuDeviceGetAttribute(&value, which, device));
    return value;
  };
  std::array<char, 128> name{};
  static_cast<void>(driver.cuDeviceGetName(name.data(), 127, device));
  std::size_t memory = 0;
  static_cast<void>(driver.cuDeviceTotalMem(&memory, device));
  int driver_version = 0;
  static_cast<void>(driver.cuDriverGetVersion(&driver_version));
  const nlohmann::json json{
      {"deviceName", name.data()},
      {"deviceVer", 100 * ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                        10 * ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)},
      {"driverVer", driver_version},
      {"cudaDeviceId", device},
      {"pciDeviceId", ask(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)},
      {"maxGridSize", std::array{ask(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                                 ask(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                                 ask(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)}},
      {"maxBlockSize", std::array{ask(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                                  ask(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                                  ask(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)}},
      {"maxThreadsPerBlock", ask(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)},
      {"maxThreadsPerSM", ask(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)},
      {"maxCtasPerSM", ask(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)},
      {"multiProcessorCount", ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)},
      {"warpSize", ask(CU_DEVICE_ATTRIBUTE_WARP_SIZE)},
      {"regsPerBlock", ask(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)},
      {"maxRegistersPerSM", ask(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)},
      {"maxSharedMemoryPerBlock", ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)},
      {"maxSharedMemoryPerBlockOptin",
       ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)},
      {"reservedSharedMemoryPerBlock",
       ask(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)},
      {"isTccDriver", ask(CU_DEVICE_ATTRIBUTE_TCC_DRIVER)},
      {"supportCoopLaunch", ask(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)},
      {"smClockRateKHz", ask(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)},
      {"memClockRateKHz", ask(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)},
      {"l2CacheSize", ask(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)},
      {"totalGlobalMem", memory}};
  return json.dump();
}

}  // namespace kiln::simulated
