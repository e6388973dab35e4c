// The CUDA driver as the tests on real devices use it beside Kiln: memory, streams,
// graphs, events. Opened like Kiln opens it, so that both speak to the same one.

#pragma once

#include <cuda.h>

#include <string>

// Spelt as cuda.h maps them: cuMemAlloc is cuMemAlloc_v2, in member and symbol alike.
#define KILN_GPU_TEST_FUNCTIONS(X) \
  X(cuInit)                        \
  X(cuGetErrorName)                \
  X(cuDeviceGet)                   \
  X(cuDeviceGetCount)              \
  X(cuDeviceGetAttribute)          \
  X(cuDevicePrimaryCtxRetain)      \
  X(cuDevicePrimaryCtxRelease)     \
  X(cuCtxGetCurrent)               \
  X(cuCtxGetDevice)                \
  X(cuCtxPushCurrent)              \
  X(cuCtxPopCurrent)               \
  X(cuCtxSynchronize)              \
  X(cuCtxDestroy)                  \
  X(cuModuleLoadData)              \
  X(cuModuleLoadDataEx)            \
  X(cuModuleGetFunction)           \
  X(cuModuleUnload)                \
  X(cuFuncGetAttribute)            \
  X(cuLaunchKernel)                \
  X(cuMemAlloc)                    \
  X(cuMemFree)                     \
  X(cuMemcpyHtoD)                  \
  X(cuMemcpyDtoH)                  \
  X(cuMemcpyDtoDAsync)             \
  X(cuMemsetD8)                    \
  X(cuStreamCreate)                \
  X(cuStreamDestroy)               \
  X(cuStreamSynchronize)           \
  X(cuStreamBeginCapture)          \
  X(cuStreamEndCapture)            \
  X(cuGraphDestroy)                \
  X(cuGraphInstantiateWithFlags)   \
  X(cuGraphExecDestroy)            \
  X(cuGraphLaunch)                 \
  X(cuEventCreate)                 \
  X(cuEventDestroy)                \
  X(cuEventRecord)                 \
  X(cuEventSynchronize)

namespace kiln::gpu_test {

/// Thread safety: immutable.
struct Driver {
  /// libkiln-simulated-driver.so: it checks every call, and runs the kernels' PTX.
  bool is_simulated = false;
  /// Of a simulated one: which cache has the PTX of the kernels.
  void (*read_ptx_from)(const char*) = nullptr;
// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name
#define KILN_GPU_TEST_MEMBER(function) decltype(&::function) function = nullptr;
  KILN_GPU_TEST_FUNCTIONS(KILN_GPU_TEST_MEMBER)
#undef KILN_GPU_TEST_MEMBER
  // By their first names: newer headers map these to what older drivers lack.
  CUresult (*create_context)(CUcontext*, unsigned, CUdevice) = nullptr;
  CUresult (*elapsed_ms)(float*, CUevent, CUevent) = nullptr;
};

/// KILN_DRIVER, else libcuda.so.1; started. Null where there is none that starts: then
/// why_no_driver() has the reason, a word for GTEST_SKIP(). Throws where a driver lacks
/// a function.
[[nodiscard]] const Driver* find_driver();
[[nodiscard]] const std::string& why_no_driver();

/// find_driver() where a test has not been skipped.
[[nodiscard]] inline const Driver& driver() {
  return *find_driver();
}

/// Throws with the call and the driver's name for the error, which fails the test.
void must(CUresult result, const char* call);

}  // namespace kiln::gpu_test
