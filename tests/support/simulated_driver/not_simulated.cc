// What a driver has and this one does not simulate: every such function is there, is
// counted, and returns an error. The ABI lets a caller pass what it likes, so none has
// parameters here, and this file knows no cuda.h, which declares them.

#include "tests/support/simulated_driver/not_simulated.h"

#include <vector>

// Each symbol, and the CUDA version that brought it.
// clang-format off
#define KILN_NOT_SIMULATED(X) \
  X(cuArray3DCreate_v2, 3020) X(cuArray3DGetDescriptor_v2, 3020) \
  X(cuArrayCreate_v2, 3020) X(cuArrayDestroy, 2000) X(cuArrayGetDescriptor_v2, 3020) \
  X(cuArrayGetMemoryRequirements, 11060) X(cuArrayGetPlane, 11020) \
  X(cuArrayGetSparseProperties, 11010) X(cuCheckpointOperationComplete, 13041) \
  X(cuCheckpointProcessCheckpoint, 12080) \
  X(cuCheckpointProcessGetRestoreThreadId, 12080) \
  X(cuCheckpointProcessGetState, 12080) X(cuCheckpointProcessLock, 12080) \
  X(cuCheckpointProcessRestore, 12080) X(cuCheckpointProcessUnlock, 12080) \
  X(cuCoredumpDeregisterCompleteCallback, 13020) \
  X(cuCoredumpDeregisterStartCallback, 13020) X(cuCoredumpGetAttribute, 12010) \
  X(cuCoredumpGetAttributeGlobal, 12010) X(cuCoredumpRegisterCompleteCallback, 13020) \
  X(cuCoredumpRegisterStartCallback, 13020) X(cuCoredumpSetAttribute, 12010) \
  X(cuCoredumpSetAttributeGlobal, 12010) X(cuCtxAttach, 2000) X(cuCtxDetach, 2000) \
  X(cuCtxDisablePeerAccess, 4000) X(cuCtxEnablePeerAccess, 4000) \
  X(cuCtxFromGreenCtx, 12040) X(cuCtxGetCacheConfig, 3020) \
  X(cuCtxGetDevResource, 12040) X(cuCtxGetExecAffinity, 11040) X(cuCtxGetLimit, 3010) \
  X(cuCtxGetSharedMemConfig, 4020) X(cuCtxRecordEvent, 12050) \
  X(cuCtxResetPersistingL2Cache, 11000) X(cuCtxSetCacheConfig, 3020) \
  X(cuCtxSetFlags, 12010) X(cuCtxSetLimit, 3010) X(cuCtxSetSharedMemConfig, 4020) \
  X(cuCtxWaitEvent, 12050) X(cuDestroyExternalMemory, 10000) \
  X(cuDestroyExternalSemaphore, 10000) X(cuDevResourceGenerateDesc, 12040) \
  X(cuDevSmResourceSplit, 13010) X(cuDevSmResourceSplitByCount, 12040) \
  X(cuDeviceComputeCapability, 2000) X(cuDeviceGetCliqueCount, 13041) \
  X(cuDeviceGetCliqueInfo, 13041) X(cuDeviceGetDevResource, 12040) \
  X(cuDeviceGetExecAffinitySupport, 11040) X(cuDeviceGetFabricClusterUuid, 13041) \
  X(cuDeviceGetGraphMemAttribute, 11040) X(cuDeviceGetHostAtomicCapabilities, 13000) \
  X(cuDeviceGetLuid, 10000) X(cuDeviceGetNvSciSyncAttributes, 10020) \
  X(cuDeviceGetP2PAtomicCapabilities, 13000) X(cuDeviceGetP2PAttribute, 8000) \
  X(cuDeviceGetProperties, 2000) X(cuDeviceGetTexture1DLinearMaxWidth, 11010) \
  X(cuDeviceGraphMemTrim, 11040) X(cuDeviceRegisterAsyncNotification, 12040) \
  X(cuDeviceSetGraphMemAttribute, 11040) X(cuDeviceUnregisterAsyncNotification, 12040) \
  X(cuEGLStreamConsumerAcquireFrame, 7000) X(cuEGLStreamConsumerConnect, 7000) \
  X(cuEGLStreamConsumerConnectWithFlags, 8000) X(cuEGLStreamConsumerDisconnect, 7000) \
  X(cuEGLStreamConsumerReleaseFrame, 7000) X(cuEGLStreamProducerConnect, 7000) \
  X(cuEGLStreamProducerDisconnect, 7000) X(cuEGLStreamProducerPresentFrame, 7000) \
  X(cuEGLStreamProducerReturnFrame, 7000) X(cuEventCreateFromEGLSync, 9000) \
  X(cuExternalMemoryGetMappedBuffer, 10000) \
  X(cuExternalMemoryGetMappedMipmappedArray, 10000) X(cuFabricCpyBatchAsync, 13050) \
  X(cuFlushGPUDirectRDMAWrites, 11030) X(cuFuncGetParamCount, 13020) \
  X(cuFuncSetBlockShape, 2000) X(cuFuncSetSharedMemConfig, 4020) \
  X(cuFuncSetSharedSize, 2000) X(cuGLCtxCreate_v2, 3020) X(cuGLGetDevices_v2, 6050) \
  X(cuGLInit, 2000) X(cuGLMapBufferObjectAsync_v2, 3020) \
  X(cuGLMapBufferObject_v2, 3020) X(cuGLRegisterBufferObject, 2000) \
  X(cuGLSetBufferObjectMapFlags, 2030) X(cuGLUnmapBufferObject, 2000) \
  X(cuGLUnmapBufferObjectAsync, 2030) X(cuGLUnregisterBufferObject, 2000) \
  X(cuGetExportTable, 3000) X(cuGraphAddBatchMemOpNode, 11070) \
  X(cuGraphAddExternalSemaphoresSignalNode, 11020) \
  X(cuGraphAddExternalSemaphoresWaitNode, 11020) X(cuGraphAddMemAllocNode, 11040) \
  X(cuGraphAddMemFreeNode, 11040) X(cuGraphAddNode_v2, 12030) \
  X(cuGraphAddNode_v3, 13041) X(cuGraphBatchMemOpNodeGetParams, 11070) \
  X(cuGraphBatchMemOpNodeSetParams, 11070) X(cuGraphConditionalHandleCreate, 12030) \
  X(cuGraphEventRecordNodeSetEvent, 11010) X(cuGraphEventWaitNodeSetEvent, 11010) \
  X(cuGraphExecBatchMemOpNodeSetParams, 11070) \
  X(cuGraphExecChildGraphNodeSetParams, 11010) \
  X(cuGraphExecEventRecordNodeSetEvent, 11010) \
  X(cuGraphExecEventWaitNodeSetEvent, 11010) \
  X(cuGraphExecExternalSemaphoresSignalNodeSetParams, 11020) \
  X(cuGraphExecExternalSemaphoresWaitNodeSetParams, 11020) X(cuGraphExecGetId, 13010) \
  X(cuGraphExecHostNodeSetParams, 10020) X(cuGraphExecMemcpyNodeSetParams, 10020) \
  X(cuGraphExecMemsetNodeSetParams, 10020) X(cuGraphExecNodeSetParams, 12020) \
  X(cuGraphExternalSemaphoresSignalNodeGetParams, 11020) \
  X(cuGraphExternalSemaphoresSignalNodeSetParams, 11020) \
  X(cuGraphExternalSemaphoresWaitNodeGetParams, 11020) \
  X(cuGraphExternalSemaphoresWaitNodeSetParams, 11020) X(cuGraphGetId, 13010) \
  X(cuGraphHostNodeSetParams, 10000) X(cuGraphKernelNodeCopyAttributes, 11000) \
  X(cuGraphKernelNodeGetAttribute, 11000) X(cuGraphKernelNodeSetAttribute, 11000) \
  X(cuGraphMemAllocNodeGetParams, 11040) X(cuGraphMemFreeNodeGetParams, 11040) \
  X(cuGraphMemcpyNodeSetParams, 10000) X(cuGraphMemsetNodeSetParams, 10000) \
  X(cuGraphNodeGetContainingGraph, 13010) X(cuGraphNodeGetEnabled, 11060) \
  X(cuGraphNodeGetLocalId, 13010) X(cuGraphNodeGetParams, 13020) \
  X(cuGraphNodeGetToolsId, 13010) X(cuGraphNodeSetEnabled, 11060) \
  X(cuGraphNodeSetParams, 12020) X(cuGraphNodeSetParams_v2, 13041) \
  X(cuGraphicsEGLRegisterImage, 7000) X(cuGraphicsGLRegisterBuffer, 3000) \
  X(cuGraphicsGLRegisterImage, 3000) X(cuGraphicsMapResources, 3000) \
  X(cuGraphicsResourceGetMappedEglFrame, 7000) \
  X(cuGraphicsResourceGetMappedMipmappedArray, 5000) \
  X(cuGraphicsResourceGetMappedPointer_v2, 3020) \
  X(cuGraphicsResourceSetMapFlags_v2, 6050) \
  X(cuGraphicsSubResourceGetMappedArray, 3000) X(cuGraphicsUnmapResources, 3000) \
  X(cuGraphicsUnregisterResource, 3000) X(cuGraphicsVDPAURegisterOutputSurface, 3010) \
  X(cuGraphicsVDPAURegisterVideoSurface, 3010) X(cuGreenCtxCreate, 12040) \
  X(cuGreenCtxDestroy, 12040) X(cuGreenCtxGetDevResource, 12040) \
  X(cuGreenCtxGetId, 12090) X(cuGreenCtxRecordEvent, 12040) \
  X(cuGreenCtxStreamCreate, 12050) X(cuGreenCtxWaitEvent, 12040) \
  X(cuImportExternalMemory, 10000) X(cuImportExternalSemaphore, 10000) \
  X(cuIpcCloseMemHandle, 4010) X(cuIpcGetEventHandle, 4010) X(cuIpcGetMemHandle, 4010) \
  X(cuIpcOpenEventHandle, 4010) X(cuIpcOpenMemHandle_v2, 11000) \
  X(cuKernelGetParamCount, 13020) X(cuKernelSetCacheConfig, 12000) X(cuLaunch, 2000) \
  X(cuLaunchCooperativeKernelMultiDevice, 9000) X(cuLaunchGrid, 2000) \
  X(cuLaunchGridAsync, 2000) X(cuLibraryGetManaged, 12000) \
  X(cuLibraryGetUnifiedFunction, 12000) X(cuLinkAddData_v2, 6050) \
  X(cuLinkAddFile_v2, 6050) X(cuLinkComplete, 5050) X(cuLinkCreate_v2, 6050) \
  X(cuLinkDestroy, 5050) X(cuLogicalEndpointAddDevice, 13030) \
  X(cuLogicalEndpointBindAddr, 13030) X(cuLogicalEndpointBindMem, 13030) \
  X(cuLogicalEndpointCreate, 13030) X(cuLogicalEndpointDestroy, 13030) \
  X(cuLogicalEndpointExport, 13030) X(cuLogicalEndpointGetLimits, 13030) \
  X(cuLogicalEndpointIdRelease, 13030) X(cuLogicalEndpointIdReserve, 13030) \
  X(cuLogicalEndpointImport, 13030) X(cuLogicalEndpointQuery, 13030) \
  X(cuLogicalEndpointUnbind, 13030) X(cuLogsCurrent, 12090) X(cuLogsDumpToFile, 12090) \
  X(cuLogsDumpToMemory, 12090) X(cuLogsRegisterCallback, 12090) \
  X(cuLogsUnregisterCallback, 12090) X(cuMemAddressFree, 10020) \
  X(cuMemAddressReserve, 10020) X(cuMemAdvise_v2, 12020) \
  X(cuMemBatchDecompressAsync, 12060) X(cuMemCreate, 10020) \
  X(cuMemDiscardAndPrefetchBatchAsync, 13000) X(cuMemDiscardBatchAsync, 13000) \
  X(cuMemExportToShareableHandle, 10020) X(cuMemGetAccess, 10020) \
  X(cuMemGetAllocationGranularity, 10020) \
  X(cuMemGetAllocationPropertiesFromHandle, 10020) \
  X(cuMemGetHandleForAddressRange, 11070) X(cuMemGetLocationInfo, 13041) \
  X(cuMemImportFromShareableHandle, 10020) X(cuMemMap, 10020) \
  X(cuMemMapArrayAsync, 11010) X(cuMemPoolExportPointer, 11020) \
  X(cuMemPoolExportToShareableHandle, 11020) \
  X(cuMemPoolImportFromShareableHandle, 11020) X(cuMemPoolImportPointer, 11020) \
  X(cuMemPrefetchAsync_v2, 12020) X(cuMemPrefetchBatchAsync, 13000) \
  X(cuMemRangeGetAttribute, 8000) X(cuMemRangeGetAttributes, 8000) \
  X(cuMemRelease, 10020) X(cuMemRetainAllocationHandle, 11000) \
  X(cuMemSetAccess, 10020) X(cuMemUnmap, 10020) X(cuMemcpy3DBatchAsync_v2, 13000) \
  X(cuMemcpy3DPeer, 4000) X(cuMemcpy3DPeerAsync, 4000) \
  X(cuMemcpy3DWithAttributesAsync, 13020) X(cuMemcpyAtoA_v2, 3020) \
  X(cuMemcpyAtoD_v2, 3020) X(cuMemcpyAtoHAsync_v2, 3020) X(cuMemcpyAtoH_v2, 3020) \
  X(cuMemcpyBatchAsync_v2, 13000) X(cuMemcpyDtoA_v2, 3020) \
  X(cuMemcpyHtoAAsync_v2, 3020) X(cuMemcpyHtoA_v2, 3020) X(cuMemcpyPeer, 4000) \
  X(cuMemcpyPeerAsync, 4000) X(cuMemcpyWithAttributesAsync, 13020) \
  X(cuMipmappedArrayCreate, 5000) X(cuMipmappedArrayDestroy, 5000) \
  X(cuMipmappedArrayGetLevel, 5000) X(cuMipmappedArrayGetMemoryRequirements, 11060) \
  X(cuMipmappedArrayGetSparseProperties, 11010) X(cuModuleGetSurfRef, 3000) \
  X(cuModuleGetTexRef, 2000) X(cuModuleLoadFatBinary, 2000) \
  X(cuMulticastAddDevice, 12010) X(cuMulticastBindAddr, 12010) \
  X(cuMulticastBindAddr_v2, 13010) X(cuMulticastBindMem, 12010) \
  X(cuMulticastBindMem_v2, 13010) X(cuMulticastCreate, 12010) \
  X(cuMulticastGetGranularity, 12010) X(cuMulticastUnbind, 12010) \
  X(cuParamSetSize, 2000) X(cuParamSetTexRef, 2000) X(cuParamSetf, 2000) \
  X(cuParamSeti, 2000) X(cuParamSetv, 2000) X(cuPointerSetAttribute, 6000) \
  X(cuProfilerInitialize, 4000) X(cuProfilerStart, 4000) X(cuProfilerStop, 4000) \
  X(cuSignalExternalSemaphoresAsync, 10000) X(cuStreamAttachMemAsync, 6000) \
  X(cuStreamBatchMemOp_v2, 11070) X(cuStreamBeginCaptureToCig, 13020) \
  X(cuStreamBeginRecaptureToGraph, 13030) X(cuStreamCopyAttributes, 11000) \
  X(cuStreamEndCaptureToCig, 13020) X(cuStreamGetAttribute, 11000) \
  X(cuStreamGetDevResource, 13010) X(cuStreamGetGreenCtx, 12040) \
  X(cuStreamSetAttribute, 11000) X(cuStreamWaitValue32_v2, 11070) \
  X(cuStreamWaitValue64_v2, 11070) X(cuStreamWriteValue32_v2, 11070) \
  X(cuStreamWriteValue64_v2, 11070) X(cuSurfObjectCreate, 5000) \
  X(cuSurfObjectDestroy, 5000) X(cuSurfObjectGetResourceDesc, 5000) \
  X(cuSurfRefGetArray, 3000) X(cuSurfRefSetArray, 3000) \
  X(cuTensorMapEncodeIm2col, 12000) X(cuTensorMapEncodeIm2colWide, 12080) \
  X(cuTensorMapEncodeTiled, 12000) X(cuTensorMapReplaceAddress, 12000) \
  X(cuTensorMapSetAllocationClass, 13050) X(cuTexObjectCreate, 5000) \
  X(cuTexObjectDestroy, 5000) X(cuTexObjectGetResourceDesc, 5000) \
  X(cuTexObjectGetResourceViewDesc, 5000) X(cuTexObjectGetTextureDesc, 5000) \
  X(cuTexRefCreate, 2000) X(cuTexRefDestroy, 2000) X(cuTexRefGetAddressMode, 2000) \
  X(cuTexRefGetAddress_v2, 3020) X(cuTexRefGetArray, 2000) \
  X(cuTexRefGetBorderColor, 8000) X(cuTexRefGetFilterMode, 2000) \
  X(cuTexRefGetFlags, 2000) X(cuTexRefGetFormat, 2000) \
  X(cuTexRefGetMaxAnisotropy, 5000) X(cuTexRefGetMipmapFilterMode, 5000) \
  X(cuTexRefGetMipmapLevelBias, 5000) X(cuTexRefGetMipmapLevelClamp, 5000) \
  X(cuTexRefGetMipmappedArray, 5000) X(cuTexRefSetAddress2D_v3, 4010) \
  X(cuTexRefSetAddressMode, 2000) X(cuTexRefSetAddress_v2, 3020) \
  X(cuTexRefSetArray, 2000) X(cuTexRefSetBorderColor, 8000) \
  X(cuTexRefSetFilterMode, 2000) X(cuTexRefSetFlags, 2000) X(cuTexRefSetFormat, 2000) \
  X(cuTexRefSetMaxAnisotropy, 5000) X(cuTexRefSetMipmapFilterMode, 5000) \
  X(cuTexRefSetMipmapLevelBias, 5000) X(cuTexRefSetMipmapLevelClamp, 5000) \
  X(cuTexRefSetMipmappedArray, 5000) X(cuVDPAUCtxCreate_v2, 3020) \
  X(cuVDPAUGetDevice, 3010) X(cuWaitExternalSemaphoresAsync, 10000)
// clang-format on

#define KILN_REFUSE(symbol, since)                                    \
  extern "C" [[gnu::visibility("default"), gnu::used]] int symbol() { \
    return kiln::simulated::refuse(#symbol);                          \
  }
KILN_NOT_SIMULATED(KILN_REFUSE)
#undef KILN_REFUSE

namespace kiln::simulated {

std::span<const DriverFunction> refused_functions() {
#define KILN_ROW(symbol, since) \
  {name_of_symbol(#symbol), #symbol, since, reinterpret_cast<void*>(&::symbol)},
  // Never destroyed.
  static const auto& table =
      *new std::vector<DriverFunction>{KILN_NOT_SIMULATED(KILN_ROW)};
#undef KILN_ROW
  return table;
}

}  // namespace kiln::simulated
