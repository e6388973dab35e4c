// A CUDA driver without devices, for cuDNN to find as libcuda.so.1 when it builds a
// plan. It has every function that cuDNN 9 looks up by name, reports that there is no
// device, and fails every other call except loading compiled code: cuDNN 9.8 does that
// even without a device, and has no plan if it fails. Only the plan worker loads this
// driver; it is never installed where a loader would find it.

namespace {

// As in cuda.h, which is not included: it declares these functions with arguments.
constexpr int kSuccess = 0;
constexpr int kErrorNoDevice = 100;
constexpr int kVersion = 13000;  // CUDA 13.0, as cuDriverGetVersion encodes it

// The handle of every library and kernel; never dereferenced.
char loaded;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

// C symbols do not encode argument types, so arguments that are not read are omitted.
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
