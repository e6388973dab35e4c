#include "tests/support/simulated_driver/functions.h"

#include <algorithm>
#include <vector>

#include "tests/support/simulated_driver/abi.h"
#include "tests/support/simulated_driver/not_simulated.h"

// clang-format off
#define KILN_SIMULATED_FUNCTIONS(X) \
  X(cuCtxCreate_v2, 3020) X(cuCtxCreate_v3, 11040) X(cuCtxCreate_v4, 12050) \
  X(cuCtxDestroy_v2, 4000) X(cuCtxGetApiVersion, 3020) X(cuCtxGetCurrent, 4000) \
  X(cuCtxGetDevice, 2000) X(cuCtxGetDevice_v2, 13000) X(cuCtxGetFlags, 7000) \
  X(cuCtxGetId, 12000) X(cuCtxGetStreamPriorityRange, 5050) \
  X(cuCtxPopCurrent_v2, 4000) X(cuCtxPushCurrent_v2, 4000) X(cuCtxSetCurrent, 4000) \
  X(cuCtxSynchronize, 2000) X(cuCtxSynchronize_v2, 13000) \
  X(cuDeviceCanAccessPeer, 4000) X(cuDeviceGet, 2000) X(cuDeviceGetAttribute, 2000) \
  X(cuDeviceGetByPCIBusId, 4010) X(cuDeviceGetCount, 2000) \
  X(cuDeviceGetDefaultMemPool, 11020) X(cuDeviceGetMemPool, 11020) \
  X(cuDeviceGetName, 2000) X(cuDeviceGetPCIBusId, 4010) X(cuDeviceGetUuid, 9020) \
  X(cuDeviceGetUuid_v2, 11040) X(cuDevicePrimaryCtxGetState, 7000) \
  X(cuDevicePrimaryCtxRelease_v2, 11000) X(cuDevicePrimaryCtxReset_v2, 11000) \
  X(cuDevicePrimaryCtxRetain, 7000) X(cuDevicePrimaryCtxSetFlags_v2, 11000) \
  X(cuDeviceSetMemPool, 11020) X(cuDeviceTotalMem_v2, 3020) \
  X(cuDriverGetVersion, 2020) X(cuEventCreate, 2000) X(cuEventDestroy_v2, 4000) \
  X(cuEventElapsedTime, 2000) X(cuEventElapsedTime_v2, 12080) X(cuEventQuery, 2000) \
  X(cuEventRecord, 2000) X(cuEventRecordWithFlags, 11010) X(cuEventSynchronize, 2000) \
  X(cuFuncGetAttribute, 2020) X(cuFuncGetModule, 11000) X(cuFuncGetName, 12030) \
  X(cuFuncGetParamInfo, 12040) X(cuFuncIsLoaded, 12040) X(cuFuncLoad, 12040) \
  X(cuFuncSetAttribute, 9000) X(cuFuncSetCacheConfig, 3000) X(cuGetErrorName, 6000) \
  X(cuGetErrorString, 6000) X(cuGetProcAddress, 11030) X(cuGetProcAddress_v2, 12000) \
  X(cuGraphAddChildGraphNode, 10000) X(cuGraphAddDependencies_v2, 12030) \
  X(cuGraphAddEmptyNode, 10000) X(cuGraphAddEventRecordNode, 11010) \
  X(cuGraphAddEventWaitNode, 11010) X(cuGraphAddHostNode, 10000) \
  X(cuGraphAddKernelNode_v2, 12000) X(cuGraphAddMemcpyNode, 10000) \
  X(cuGraphAddMemsetNode, 10000) X(cuGraphChildGraphNodeGetGraph, 10000) \
  X(cuGraphClone, 10000) X(cuGraphCreate, 10000) X(cuGraphDebugDotPrint, 11030) \
  X(cuGraphDestroy, 10000) X(cuGraphDestroyNode, 10000) \
  X(cuGraphEventRecordNodeGetEvent, 11010) X(cuGraphEventWaitNodeGetEvent, 11010) \
  X(cuGraphExecDestroy, 10000) X(cuGraphExecGetFlags, 12000) \
  X(cuGraphExecKernelNodeSetParams_v2, 12000) X(cuGraphExecUpdate_v2, 12000) \
  X(cuGraphGetEdges_v2, 12030) X(cuGraphGetNodes, 10000) X(cuGraphGetRootNodes, 10000) \
  X(cuGraphHostNodeGetParams, 10000) X(cuGraphInstantiateWithFlags, 11040) \
  X(cuGraphInstantiateWithParams, 12000) X(cuGraphKernelNodeGetParams_v2, 12000) \
  X(cuGraphKernelNodeSetParams_v2, 12000) X(cuGraphLaunch, 10000) \
  X(cuGraphMemcpyNodeGetParams, 10000) X(cuGraphMemsetNodeGetParams, 10000) \
  X(cuGraphNodeFindInClone, 10000) X(cuGraphNodeGetDependencies_v2, 12030) \
  X(cuGraphNodeGetDependentNodes_v2, 12030) X(cuGraphNodeGetType, 10000) \
  X(cuGraphReleaseUserObject, 11030) X(cuGraphRemoveDependencies_v2, 12030) \
  X(cuGraphRetainUserObject, 11030) X(cuGraphUpload, 11010) X(cuInit, 2000) \
  X(cuKernelGetAttribute, 12000) X(cuKernelGetFunction, 12000) \
  X(cuKernelGetLibrary, 12050) X(cuKernelGetName, 12030) \
  X(cuKernelGetParamInfo, 12040) X(cuKernelSetAttribute, 12000) \
  X(cuLaunchCooperativeKernel, 9000) X(cuLaunchHostFunc, 10000) \
  X(cuLaunchHostFunc_v2, 13020) X(cuLaunchKernel, 4000) X(cuLaunchKernelEx, 11060) \
  X(cuLibraryEnumerateKernels, 12040) X(cuLibraryGetGlobal, 12000) \
  X(cuLibraryGetKernel, 12000) X(cuLibraryGetKernelCount, 12040) \
  X(cuLibraryGetModule, 12000) X(cuLibraryLoadData, 12000) \
  X(cuLibraryLoadFromFile, 12000) X(cuLibraryUnload, 12000) X(cuMemAllocAsync, 11020) \
  X(cuMemAllocFromPoolAsync, 11020) X(cuMemAllocHost_v2, 3020) \
  X(cuMemAllocManaged, 6000) X(cuMemAllocPitch_v2, 3020) X(cuMemAlloc_v2, 3020) \
  X(cuMemFreeAsync, 11020) X(cuMemFreeHost, 2000) X(cuMemFree_v2, 3020) \
  X(cuMemGetAddressRange_v2, 3020) X(cuMemGetDefaultMemPool, 13000) \
  X(cuMemGetInfo_v2, 3020) X(cuMemGetMemPool, 13000) X(cuMemHostAlloc, 2020) \
  X(cuMemHostGetDevicePointer_v2, 3020) X(cuMemHostGetFlags, 2030) \
  X(cuMemHostRegister_v2, 6050) X(cuMemHostUnregister, 4000) X(cuMemPoolCreate, 11020) \
  X(cuMemPoolDestroy, 11020) X(cuMemPoolGetAccess, 11020) \
  X(cuMemPoolGetAttribute, 11020) X(cuMemPoolSetAccess, 11020) \
  X(cuMemPoolSetAttribute, 11020) X(cuMemPoolTrimTo, 11020) X(cuMemSetMemPool, 13000) \
  X(cuMemcpy, 4000) X(cuMemcpy2DAsync_v2, 3020) X(cuMemcpy2DUnaligned_v2, 3020) \
  X(cuMemcpy2D_v2, 3020) X(cuMemcpy3DAsync_v2, 3020) X(cuMemcpy3D_v2, 3020) \
  X(cuMemcpyAsync, 4000) X(cuMemcpyDtoDAsync_v2, 3020) X(cuMemcpyDtoD_v2, 3020) \
  X(cuMemcpyDtoHAsync_v2, 3020) X(cuMemcpyDtoH_v2, 3020) X(cuMemcpyHtoDAsync_v2, 3020) \
  X(cuMemcpyHtoD_v2, 3020) X(cuMemsetD16Async, 3020) X(cuMemsetD16_v2, 3020) \
  X(cuMemsetD2D16Async, 3020) X(cuMemsetD2D16_v2, 3020) X(cuMemsetD2D32Async, 3020) \
  X(cuMemsetD2D32_v2, 3020) X(cuMemsetD2D8Async, 3020) X(cuMemsetD2D8_v2, 3020) \
  X(cuMemsetD32Async, 3020) X(cuMemsetD32_v2, 3020) X(cuMemsetD8Async, 3020) \
  X(cuMemsetD8_v2, 3020) X(cuModuleEnumerateFunctions, 12040) \
  X(cuModuleGetFunction, 2000) X(cuModuleGetFunctionCount, 12040) \
  X(cuModuleGetGlobal_v2, 3020) X(cuModuleGetLoadingMode, 11070) X(cuModuleLoad, 2000) \
  X(cuModuleLoadData, 2000) X(cuModuleLoadDataEx, 2010) X(cuModuleUnload, 2000) \
  X(cuOccupancyAvailableDynamicSMemPerBlock, 10020) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000) \
  X(cuOccupancyMaxActiveClusters, 11070) X(cuOccupancyMaxPotentialBlockSize, 6050) \
  X(cuOccupancyMaxPotentialBlockSizeWithFlags, 7000) \
  X(cuOccupancyMaxPotentialClusterSize, 11070) X(cuPointerGetAttribute, 4000) \
  X(cuPointerGetAttributes, 7000) X(cuStreamAddCallback, 5000) \
  X(cuStreamBeginCaptureToGraph, 12030) X(cuStreamBeginCapture_v2, 10010) \
  X(cuStreamCreate, 2000) X(cuStreamCreateWithPriority, 5050) \
  X(cuStreamDestroy_v2, 4000) X(cuStreamEndCapture, 10000) \
  X(cuStreamGetCaptureInfo_v2, 11030) X(cuStreamGetCaptureInfo_v3, 12030) \
  X(cuStreamGetCtx, 9020) X(cuStreamGetCtx_v2, 12050) X(cuStreamGetDevice, 12080) \
  X(cuStreamGetFlags, 5050) X(cuStreamGetId, 12000) X(cuStreamGetPriority, 5050) \
  X(cuStreamIsCapturing, 10000) X(cuStreamQuery, 2000) X(cuStreamSynchronize, 2000) \
  X(cuStreamUpdateCaptureDependencies_v2, 12030) X(cuStreamWaitEvent, 3020) \
  X(cuThreadExchangeStreamCaptureMode, 10010) X(cuUserObjectCreate, 11030) \
  X(cuUserObjectRelease, 11030) X(cuUserObjectRetain, 11030)
// clang-format on

namespace kiln::simulated {

std::span<const DriverFunction> driver_functions() {
#define KILN_ROW(symbol, since) \
  {name_of_symbol(#symbol), #symbol, since, reinterpret_cast<void*>(&::symbol)},
  // Never destroyed: the driver is there until the process ends.
  static const auto& table = *[] {
    auto* const all =
        new std::vector<DriverFunction>{KILN_SIMULATED_FUNCTIONS(KILN_ROW)};
    const auto refused = refused_functions();
    all->insert(all->end(), refused.begin(), refused.end());
    return all;
  }();
#undef KILN_ROW
  return table;
}

bool is_function(std::string_view name) {
  const auto all = driver_functions();
  return std::any_of(all.begin(), all.end(),
                     [&](const DriverFunction& each) { return each.name == name; });
}

std::string_view name_of_symbol(std::string_view symbol) {
  const std::size_t version = symbol.rfind("_v");
  return version == std::string_view::npos ? symbol : symbol.substr(0, version);
}

}  // namespace kiln::simulated
