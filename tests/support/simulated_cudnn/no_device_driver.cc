// A libcuda.so.1 without a device: all that cuDNN asks of a driver to read plans.

// The driver's own names. NOLINTBEGIN(readability-identifier-naming)
#define KILN_NO_DEVICE(name)                                        \
  extern "C" __attribute__((visibility("default"))) int name(...) { \
    return 100; /* CUDA_ERROR_NO_DEVICE */                          \
  }

KILN_NO_DEVICE(cuInit)
KILN_NO_DEVICE(cuCtxGetCurrent)
KILN_NO_DEVICE(cuCtxGetLimit)
KILN_NO_DEVICE(cuCtxPopCurrent)
KILN_NO_DEVICE(cuCtxPushCurrent)
KILN_NO_DEVICE(cuDeviceGet)
KILN_NO_DEVICE(cuGetErrorName)
KILN_NO_DEVICE(cuGetErrorString)
KILN_NO_DEVICE(cuKernelGetAttribute)
KILN_NO_DEVICE(cuKernelSetAttribute)
KILN_NO_DEVICE(cuLaunchCooperativeKernel)
KILN_NO_DEVICE(cuLaunchKernel)
KILN_NO_DEVICE(cuLaunchKernelEx)
KILN_NO_DEVICE(cuLibraryGetKernel)
KILN_NO_DEVICE(cuLibraryLoadData)
KILN_NO_DEVICE(cuLibraryLoadFromFile)
KILN_NO_DEVICE(cuLibraryUnload)
KILN_NO_DEVICE(cuLinkAddData)
KILN_NO_DEVICE(cuLinkComplete)
KILN_NO_DEVICE(cuLinkCreate)
KILN_NO_DEVICE(cuLinkDestroy)
KILN_NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
KILN_NO_DEVICE(cuStreamGetCtx)

extern "C" __attribute__((visibility("default"))) int cuDeviceGetCount(int* count) {
  *count = 0;
  return 0;
}

extern "C" __attribute__((visibility("default"))) int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
// NOLINTEND(readability-identifier-naming)
