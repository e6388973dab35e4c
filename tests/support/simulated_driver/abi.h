// cuda.h for those who implement it, and its only includer here: its functions are
// exported, and the names that it maps to another version in one toolkit and not in the
// next are taken back, so that a definition's name is the symbol's name whichever
// cuda.h (12 or 13) is there.

#pragma once

#include <cstddef>

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#undef cuCtxCreate
#undef cuDeviceGetUuid
#undef cuEventElapsedTime
#undef cuGetProcAddress
#undef cuStreamGetCaptureInfo

// Not every cuda.h declares these.
#pragma GCC visibility push(default)
extern "C" {
CUresult cuGetProcAddress(const char*, void**, int, cuuint64_t);
CUresult cuDeviceGetUuid(CUuuid*, CUdevice);
CUresult cuDeviceGetUuid_v2(CUuuid*, CUdevice);
CUresult cuCtxCreate_v2(CUcontext*, unsigned, CUdevice);
CUresult cuEventElapsedTime(float*, CUevent, CUevent);
CUresult cuEventElapsedTime_v2(float*, CUevent, CUevent);
CUresult cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*,
                                   CUgraph*, const CUgraphNode**, std::size_t*);
CUresult cuStreamGetCaptureInfo_v3(CUstream, CUstreamCaptureStatus*, cuuint64_t*,
                                   CUgraph*, const CUgraphNode**,
                                   const CUgraphEdgeData**, std::size_t*);
CUresult cuCtxCreate_v3(CUcontext*, CUexecAffinityParam*, int, unsigned, CUdevice);
CUresult cuCtxGetDevice_v2(CUdevice*, CUcontext);
CUresult cuCtxSynchronize_v2(CUcontext);
CUresult cuStreamGetCtx_v2(CUstream, CUcontext*, CUgreenCtx*);
CUresult cuStreamGetDevice(CUstream, CUdevice*);
CUresult cuLaunchHostFunc_v2(CUstream, CUhostFn, void*, unsigned);
CUresult cuMemGetDefaultMemPool(CUmemoryPool*, CUmemLocation*, CUmemAllocationType);
CUresult cuMemGetMemPool(CUmemoryPool*, CUmemLocation*, CUmemAllocationType);
CUresult cuMemSetMemPool(CUmemLocation*, CUmemAllocationType, CUmemoryPool);
}
#pragma GCC visibility pop
