// A CUDA driver with no device: what cuDNN wants to find as libcuda.so.1 before it
// builds a plan. It has every function that cuDNN 9 asks for by name, says that there
// is no device, and refuses all else but to load what was compiled: cuDNN 9.8 does that
// with a device or without, and has no plan where it fails. Loaded by the plan worker
// alone, and never installed where a loader would find it.

namespace {

// As in cuda.h, which would have these functions take their arguments.
constexpr int kSuccess = 0;
constexpr int kErrorNoDevice = 100;
constexpr int kVersion = 13000;  // as cuDriverGetVersion has it: of CUDA 13.0

// What every library and kernel is, and nobody looks into.
char loaded;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

// C has no argument types in a symbol: one that is not read need not be there.
#define KILN_REFUSE(name)                                        \
  extern "C" __attribute__((visibility("default"))) int name() { \
    return kErrorNoDevice;                                       \
  }

KILN_REFUSE(cuInit)
KILN_REFUSE(cuCtxGetCurrent)
KILN_REFUSE(cuCtxGetLimit)
KILN_REFUSE(cuCtxPopCurrent)
KILN_REFUSE(cuCtxPushCurrent)
KILN_REFUSE(cuDeviceGet)
KILN_REFUSE(cuGetErrorName)
KILN_REFUSE(cuGetErrorString)
KILN_REFUSE(cuKernelGetAttribute)
KILN_REFUSE(cuKernelSetAttribute)
KILN_REFUSE(cuLaunchCooperativeKernel)
KILN_REFUSE(cuLaunchKernel)
KILN_REFUSE(cuLaunchKernelEx)
KILN_REFUSE(cuLibraryLoadFromFile)
KILN_REFUSE(cuLinkAddData)
KILN_REFUSE(cuLinkComplete)
KILN_REFUSE(cuLinkCreate)
KILN_REFUSE(cuLinkDestroy)
KILN_REFUSE(cuOccupancyMaxPotentialClusterSize)
KILN_REFUSE(cuStreamGetCtx)

// The driver's own names. NOLINTBEGIN(readability-identifier-naming)
extern "C" __attribute__((visibility("default"))) int cuLibraryLoadData(
    void** library) {
  *library = &loaded;
  return kSuccess;
}

extern "C" __attribute__((visibility("default"))) int cuLibraryGetKernel(
    void** kernel) {
  *kernel = &loaded;
  return kSuccess;
}

extern "C" __attribute__((visibility("default"))) int cuLibraryUnload() {
  return kSuccess;
}

extern "C" __attribute__((visibility("default"))) int cuDeviceGetCount(int* count) {
  *count = 0;
  return kSuccess;
}

extern "C" __attribute__((visibility("default"))) int cuDriverGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
// NOLINTEND(readability-identifier-naming)
