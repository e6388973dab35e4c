#include "tests/support/simulated_driver/functions.h"

#include <algorithm>
#include <vector>

#include "tests/support/simulated_driver/abi.h"

#define KILN_SIMULATED_FUNCTIONS(X)                                                \
  X("cuInit", cuInit, 2000)                                                        \
  X("cuDriverGetVersion", cuDriverGetVersion, 2020)                                \
  X("cuGetErrorName", cuGetErrorName, 6000)                                        \
  X("cuGetErrorString", cuGetErrorString, 6000)                                    \
  X("cuGetProcAddress", cuGetProcAddress, 11030)                                   \
  X("cuGetProcAddress", cuGetProcAddress_v2, 12000)                                \
  X("cuDeviceGetCount", cuDeviceGetCount, 2000)                                    \
  X("cuDeviceGet", cuDeviceGet, 2000)                                              \
  X("cuDeviceGetName", cuDeviceGetName, 2000)                                      \
  X("cuDeviceGetUuid", cuDeviceGetUuid, 9020)                                      \
  X("cuDeviceGetUuid", cuDeviceGetUuid_v2, 11040)                                  \
  X("cuDeviceTotalMem", cuDeviceTotalMem_v2, 3020)                                 \
  X("cuDeviceGetAttribute", cuDeviceGetAttribute, 2000)                            \
  X("cuDeviceCanAccessPeer", cuDeviceCanAccessPeer, 4000)                          \
  X("cuDeviceGetPCIBusId", cuDeviceGetPCIBusId, 4010)                              \
  X("cuDeviceGetByPCIBusId", cuDeviceGetByPCIBusId, 4010)                          \
  X("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain, 7000)                    \
  X("cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2, 11000)              \
  X("cuDevicePrimaryCtxSetFlags", cuDevicePrimaryCtxSetFlags_v2, 11000)            \
  X("cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState, 7000)                \
  X("cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset_v2, 11000)                  \
  X("cuCtxCreate", cuCtxCreate_v2, 3020)                                           \
  X("cuCtxCreate", cuCtxCreate_v4, 12050)                                          \
  X("cuCtxDestroy", cuCtxDestroy_v2, 4000)                                         \
  X("cuCtxPushCurrent", cuCtxPushCurrent_v2, 4000)                                 \
  X("cuCtxPopCurrent", cuCtxPopCurrent_v2, 4000)                                   \
  X("cuCtxSetCurrent", cuCtxSetCurrent, 4000)                                      \
  X("cuCtxGetCurrent", cuCtxGetCurrent, 4000)                                      \
  X("cuCtxGetDevice", cuCtxGetDevice, 2000)                                        \
  X("cuCtxGetFlags", cuCtxGetFlags, 7000)                                          \
  X("cuCtxGetId", cuCtxGetId, 12000)                                               \
  X("cuCtxGetApiVersion", cuCtxGetApiVersion, 3020)                                \
  X("cuCtxSynchronize", cuCtxSynchronize, 2000)                                    \
  X("cuCtxGetStreamPriorityRange", cuCtxGetStreamPriorityRange, 5050)              \
  X("cuModuleGetLoadingMode", cuModuleGetLoadingMode, 11070)                       \
  X("cuModuleLoadData", cuModuleLoadData, 2000)                                    \
  X("cuModuleLoadDataEx", cuModuleLoadDataEx, 2010)                                \
  X("cuModuleUnload", cuModuleUnload, 2000)                                        \
  X("cuModuleGetFunction", cuModuleGetFunction, 2000)                              \
  X("cuModuleGetFunctionCount", cuModuleGetFunctionCount, 12040)                   \
  X("cuModuleEnumerateFunctions", cuModuleEnumerateFunctions, 12040)               \
  X("cuModuleGetGlobal", cuModuleGetGlobal_v2, 3020)                               \
  X("cuLibraryLoadData", cuLibraryLoadData, 12000)                                 \
  X("cuLibraryUnload", cuLibraryUnload, 12000)                                     \
  X("cuLibraryGetKernel", cuLibraryGetKernel, 12000)                               \
  X("cuLibraryGetKernelCount", cuLibraryGetKernelCount, 12040)                     \
  X("cuLibraryEnumerateKernels", cuLibraryEnumerateKernels, 12040)                 \
  X("cuLibraryGetModule", cuLibraryGetModule, 12000)                               \
  X("cuKernelGetFunction", cuKernelGetFunction, 12000)                             \
  X("cuKernelGetLibrary", cuKernelGetLibrary, 12050)                               \
  X("cuKernelGetName", cuKernelGetName, 12030)                                     \
  X("cuKernelGetAttribute", cuKernelGetAttribute, 12000)                           \
  X("cuKernelSetAttribute", cuKernelSetAttribute, 12000)                           \
  X("cuFuncGetAttribute", cuFuncGetAttribute, 2020)                                \
  X("cuFuncSetAttribute", cuFuncSetAttribute, 9000)                                \
  X("cuFuncSetCacheConfig", cuFuncSetCacheConfig, 3000)                            \
  X("cuFuncGetModule", cuFuncGetModule, 11000)                                     \
  X("cuFuncGetName", cuFuncGetName, 12030)                                         \
  X("cuFuncGetParamInfo", cuFuncGetParamInfo, 12040)                               \
  X("cuFuncIsLoaded", cuFuncIsLoaded, 12040)                                       \
  X("cuFuncLoad", cuFuncLoad, 12040)                                               \
  X("cuOccupancyMaxActiveBlocksPerMultiprocessor",                                 \
    cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050)                             \
  X("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",                        \
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000)                    \
  X("cuLaunchKernel", cuLaunchKernel, 4000)                                        \
  X("cuLaunchKernelEx", cuLaunchKernelEx, 11060)                                   \
  X("cuLaunchCooperativeKernel", cuLaunchCooperativeKernel, 9000)                  \
  X("cuLaunchHostFunc", cuLaunchHostFunc, 10000)                                   \
  X("cuStreamCreate", cuStreamCreate, 2000)                                        \
  X("cuStreamCreateWithPriority", cuStreamCreateWithPriority, 5050)                \
  X("cuStreamDestroy", cuStreamDestroy_v2, 4000)                                   \
  X("cuStreamGetCtx", cuStreamGetCtx, 9020)                                        \
  X("cuStreamGetFlags", cuStreamGetFlags, 5050)                                    \
  X("cuStreamGetPriority", cuStreamGetPriority, 5050)                              \
  X("cuStreamGetId", cuStreamGetId, 12000)                                         \
  X("cuStreamSynchronize", cuStreamSynchronize, 2000)                              \
  X("cuStreamQuery", cuStreamQuery, 2000)                                          \
  X("cuStreamWaitEvent", cuStreamWaitEvent, 3020)                                  \
  X("cuStreamIsCapturing", cuStreamIsCapturing, 10000)                             \
  X("cuStreamGetCaptureInfo", cuStreamGetCaptureInfo_v2, 11030)                    \
  X("cuStreamGetCaptureInfo", cuStreamGetCaptureInfo_v3, 12030)                    \
  X("cuStreamBeginCapture", cuStreamBeginCapture_v2, 10010)                        \
  X("cuStreamEndCapture", cuStreamEndCapture, 10000)                               \
  X("cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode, 10010) \
  X("cuGraphDestroy", cuGraphDestroy, 10000)                                       \
  X("cuGraphGetNodes", cuGraphGetNodes, 10000)                                     \
  X("cuGraphInstantiateWithFlags", cuGraphInstantiateWithFlags, 11040)             \
  X("cuGraphLaunch", cuGraphLaunch, 10000)                                         \
  X("cuGraphExecDestroy", cuGraphExecDestroy, 10000)                               \
  X("cuEventCreate", cuEventCreate, 2000)                                          \
  X("cuEventDestroy", cuEventDestroy_v2, 4000)                                     \
  X("cuEventRecord", cuEventRecord, 2000)                                          \
  X("cuEventSynchronize", cuEventSynchronize, 2000)                                \
  X("cuEventQuery", cuEventQuery, 2000)                                            \
  X("cuEventElapsedTime", cuEventElapsedTime, 2000)                                \
  X("cuEventElapsedTime", cuEventElapsedTime_v2, 12080)                            \
  X("cuMemAlloc", cuMemAlloc_v2, 3020)                                             \
  X("cuMemFree", cuMemFree_v2, 3020)                                               \
  X("cuMemGetInfo", cuMemGetInfo_v2, 3020)                                         \
  X("cuMemAllocHost", cuMemAllocHost_v2, 3020)                                     \
  X("cuMemFreeHost", cuMemFreeHost, 2000)                                          \
  X("cuMemAllocAsync", cuMemAllocAsync, 11020)                                     \
  X("cuMemFreeAsync", cuMemFreeAsync, 11020)                                       \
  X("cuPointerGetAttributes", cuPointerGetAttributes, 7000)                        \
  X("cuMemcpy", cuMemcpy, 4000)                                                    \
  X("cuMemcpyAsync", cuMemcpyAsync, 4000)                                          \
  X("cuMemcpyHtoD", cuMemcpyHtoD_v2, 3020)                                         \
  X("cuMemcpyDtoH", cuMemcpyDtoH_v2, 3020)                                         \
  X("cuMemcpyDtoD", cuMemcpyDtoD_v2, 3020)                                         \
  X("cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2, 3020)                               \
  X("cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2, 3020)                               \
  X("cuMemcpyDtoDAsync", cuMemcpyDtoDAsync_v2, 3020)                               \
  X("cuMemsetD8", cuMemsetD8_v2, 3020)                                             \
  X("cuMemsetD16", cuMemsetD16_v2, 3020)                                           \
  X("cuMemsetD32", cuMemsetD32_v2, 3020)                                           \
  X("cuMemsetD8Async", cuMemsetD8Async, 3020)                                      \
  X("cuMemsetD16Async", cuMemsetD16Async, 3020)                                    \
  X("cuMemsetD32Async", cuMemsetD32Async, 3020)

namespace kiln::simulated {

std::span<const DriverFunction> driver_functions() {
#define KILN_ROW(name, symbol, since) \
  {name, #symbol, since, reinterpret_cast<void*>(&::symbol)},
  // Never destroyed: the driver is there until the process ends.
  static const auto& table =
      *new std::vector<DriverFunction>{KILN_SIMULATED_FUNCTIONS(KILN_ROW)};
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
