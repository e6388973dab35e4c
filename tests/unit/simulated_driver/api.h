// The simulated driver as a program meets it: every function by dlsym.

#pragma once

#include <cuda.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <type_traits>

#include "tests/support/simulated_driver.h"
#include "tests/support/test.h"
#include "util/bytes.h"

#define KILN_TEXT_OF(name) #name
#define KILN_SYMBOL_OF(name) KILN_TEXT_OF(name)  // after cuda.h's own macros

// clang-format off
#define KILN_SIMULATED_API(X)                                                          \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString)                \
  X(cuGetProcAddress) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName)            \
  X(cuDeviceGetUuid) X(cuDeviceTotalMem) X(cuDeviceGetAttribute)                       \
  X(cuDeviceCanAccessPeer) X(cuDeviceGetPCIBusId) X(cuDeviceGetByPCIBusId)             \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)                             \
  X(cuDevicePrimaryCtxSetFlags) X(cuDevicePrimaryCtxGetState)                          \
  X(cuDevicePrimaryCtxReset) X(cuCtxDestroy) X(cuCtxPushCurrent) X(cuCtxPopCurrent)    \
  X(cuCtxSetCurrent) X(cuCtxGetCurrent) X(cuCtxGetDevice) X(cuCtxGetFlags)             \
  X(cuCtxGetId) X(cuCtxGetApiVersion) X(cuCtxSynchronize)                              \
  X(cuCtxGetStreamPriorityRange) X(cuModuleGetLoadingMode) X(cuModuleLoadData)         \
  X(cuModuleLoadDataEx) X(cuModuleUnload) X(cuModuleGetFunction)                       \
  X(cuModuleGetFunctionCount) X(cuModuleEnumerateFunctions) X(cuModuleGetGlobal)       \
  X(cuLibraryLoadData) X(cuLibraryUnload) X(cuLibraryGetKernel)                        \
  X(cuLibraryGetKernelCount) X(cuLibraryEnumerateKernels) X(cuLibraryGetModule)        \
  X(cuKernelGetFunction) X(cuKernelGetLibrary) X(cuKernelGetName)                      \
  X(cuKernelGetAttribute) X(cuKernelSetAttribute) X(cuFuncGetAttribute)                \
  X(cuFuncSetAttribute) X(cuFuncSetCacheConfig) X(cuFuncGetModule) X(cuFuncGetName)    \
  X(cuFuncGetParamInfo) X(cuFuncIsLoaded) X(cuFuncLoad)                                \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor)                                       \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) X(cuLaunchKernel)            \
  X(cuLaunchKernelEx) X(cuLaunchCooperativeKernel) X(cuLaunchHostFunc)                 \
  X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamGetCtx) \
  X(cuStreamGetFlags) X(cuStreamGetPriority) X(cuStreamGetId) X(cuStreamSynchronize)   \
  X(cuStreamQuery) X(cuStreamWaitEvent) X(cuStreamIsCapturing)                         \
  X(cuStreamGetCaptureInfo) X(cuStreamBeginCapture) X(cuStreamEndCapture)              \
  X(cuThreadExchangeStreamCaptureMode) X(cuGraphDestroy) X(cuGraphGetNodes)            \
  X(cuGraphInstantiate) X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuEventCreate)        \
  X(cuEventDestroy) X(cuEventRecord) X(cuEventSynchronize) X(cuEventQuery)             \
  X(cuEventElapsedTime) X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo) X(cuMemAllocHost)   \
  X(cuMemFreeHost) X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuMemcpy) X(cuMemcpyAsync)   \
  X(cuPointerGetAttributes)                                                            \
  X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyDtoD) X(cuMemcpyHtoDAsync)                 \
  X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemsetD8) X(cuMemsetD16)               \
  X(cuMemsetD32) X(cuMemsetD8Async) X(cuMemsetD16Async) X(cuMemsetD32Async)            \
  X(cuMemsetD2D32) X(cuMemsetD2D8Async) X(cuMemcpy2D) X(cuMemcpy3D)                    \
  X(cuMemAllocPitch) X(cuMemAllocManaged) X(cuMemHostAlloc) X(cuMemHostRegister)       \
  X(cuMemHostUnregister) X(cuMemHostGetDevicePointer) X(cuMemHostGetFlags)             \
  X(cuMemGetAddressRange) X(cuPointerGetAttribute) X(cuMemPoolCreate)                  \
  X(cuMemPoolDestroy) X(cuMemPoolTrimTo) X(cuMemPoolGetAttribute)                      \
  X(cuMemPoolSetAttribute) X(cuMemPoolGetAccess) X(cuMemPoolSetAccess)                 \
  X(cuMemAllocFromPoolAsync) X(cuDeviceGetDefaultMemPool) X(cuDeviceGetMemPool)        \
  X(cuDeviceSetMemPool) X(cuStreamGetDevice) X(cuStreamAddCallback)                    \
  X(cuEventRecordWithFlags) X(cuModuleLoad) X(cuLibraryLoadFromFile)                   \
  X(cuLibraryGetGlobal) X(cuKernelGetParamInfo) X(cuOccupancyMaxPotentialBlockSize)    \
  X(cuOccupancyAvailableDynamicSMemPerBlock) X(cuOccupancyMaxActiveClusters)           \
  X(cuGraphCreate) X(cuGraphClone) X(cuGraphAddKernelNode) X(cuGraphAddMemcpyNode)     \
  X(cuGraphAddMemsetNode) X(cuGraphAddHostNode) X(cuGraphAddEmptyNode)                 \
  X(cuGraphAddChildGraphNode) X(cuGraphAddEventRecordNode)                             \
  X(cuGraphChildGraphNodeGetGraph) X(cuGraphKernelNodeGetParams)                       \
  X(cuGraphKernelNodeSetParams) X(cuGraphExecKernelNodeSetParams)                      \
  X(cuGraphNodeGetType) X(cuGraphGetRootNodes) X(cuGraphGetEdges_v2)                   \
  X(cuGraphNodeGetDependencies_v2) X(cuGraphAddDependencies_v2)                        \
  X(cuGraphRemoveDependencies_v2) X(cuGraphNodeFindInClone) X(cuGraphDestroyNode)      \
  X(cuGraphDebugDotPrint) X(cuGraphInstantiateWithParams) X(cuGraphExecUpdate)         \
  X(cuUserObjectCreate) X(cuUserObjectRelease) X(cuGraphRetainUserObject)
// clang-format on

namespace kiln::test {

/// What `function` stores at its first argument. Throws, so that the test ends and
/// fails, where it returns an error.
template <typename Out, typename... Rest>
Out value_of(CUresult (*function)(Out*, Rest...), std::type_identity_t<Rest>... rest) {
  Out out{};
  if (const CUresult result = function(&out, rest...); result != CUDA_SUCCESS)
    throw std::runtime_error(
        fmt::format("the driver's error {}, not a value", static_cast<int>(result)));
  return out;
}

/// A driver of its own, not yet started, with every function.
class DriverUnderTest : public SimulatedDriver {
 public:
  explicit DriverUnderTest(const std::string& devices = "9.0")
      : SimulatedDriver(devices) {
#define KILN_FIND(function)                                        \
  function = find<decltype(::function)>(KILN_SYMBOL_OF(function)); \
  EXPECT_NE(function, nullptr) << KILN_SYMBOL_OF(function);
    KILN_SIMULATED_API(KILN_FIND)
#undef KILN_FIND
    create_context = find<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
  }

#define KILN_MEMBER(function) decltype(&::function) function = nullptr;
  KILN_SIMULATED_API(KILN_MEMBER)
#undef KILN_MEMBER
  // The version of it that every cuda.h could mean.
  CUresult (*create_context)(CUcontext*, unsigned, CUdevice) = nullptr;

  /// cuInit, and the device's primary context made current; it stays retained.
  CUcontext use(CUdevice device = 0) const {
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    return context;
  }

  /// The module of `image` in the current context.
  CUmodule load(const Bytes& image) const {
    CUmodule module = nullptr;
    EXPECT_EQ(cuModuleLoadData(&module, image.data()), CUDA_SUCCESS);
    return module;
  }

  /// A function of it.
  [[nodiscard]] CUfunction load(const Bytes& image, const char* name) const {
    CUfunction function = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&function, load(image), name), CUDA_SUCCESS);
    return function;
  }

  /// Blocks of `threads` on a stream of the current context.
  CUresult launch(CUfunction function, unsigned blocks = 1, unsigned threads = 32,
                  unsigned dynamic_shared_bytes = 0, CUstream stream = nullptr) const {
    return cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, dynamic_shared_bytes,
                          stream, nullptr, nullptr);
  }
};

/// A driver whose first device's primary context is current.
class UsedDriver : public DriverUnderTest {
 public:
  explicit UsedDriver(const std::string& devices = "9.0") : DriverUnderTest(devices) {
    use();
  }
};

}  // namespace kiln::test
