// Errors of the driver, with a remedy where one is known.

#include <algorithm>
#include <array>
#include <new>
#include <string_view>

#include "device/driver_table.h"
#include "util/log.h"
#include "util/try.h"

namespace kiln::device {
namespace {

struct Remedy {
  CUresult result;
  std::string_view text;
};

constexpr std::string_view kLost =
    "the device's context is lost, and only a new process can use the device again; "
    "run it under compute-sanitizer to find the kernel";
constexpr std::string_view kHardware =
    "the device's context is lost, and only a new process can use the device again; "
    "nvidia-smi -q shows the device's health";
constexpr std::string_view kCapture =
    "a stream is being captured: make this call before the capture begins";
constexpr std::string_view kBrokenCapture =
    "an earlier call ended the capture: look for the first error";

constexpr std::array<Remedy, 39> kRemedies{{
    {CUDA_ERROR_OUT_OF_MEMORY, "free memory of the device, or load fewer kernels"},
    {CUDA_ERROR_NOT_INITIALIZED,
     "if this process was forked after CUDA was started, start it with exec instead"},
    {CUDA_ERROR_STUB_LIBRARY,
     "this is the toolkit's stub: take its folder out of LD_LIBRARY_PATH, or set "
     "KILN_DRIVER"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE,
     "another process may hold the device for itself: nvidia-smi -q -d COMPUTE shows "
     "the mode"},
    {CUDA_ERROR_INVALID_IMAGE,
     "the image is damaged: kiln verify --quarantine, then build it again"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU,
     "the image is for another architecture: build it for this device"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, kHardware},
    {CUDA_ERROR_NVLINK_UNCORRECTABLE, kHardware},
    {CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
     "install the driver's libnvidia-ptxjitcompiler, or build a cubin for this device"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
     "install a newer driver, or build with an older NVRTC (KILN_TOOLCHAIN)"},
    {CUDA_ERROR_JIT_COMPILATION_DISABLED,
     "unset CUDA_DISABLE_PTX_JIT, or build a cubin for this device"},
    {CUDA_ERROR_CONTAINED, kHardware},
    {CUDA_ERROR_INVALID_HANDLE,
     "a handle is of another context or was destroyed: look at the stream"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, kLost},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "launch fewer threads a block"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, kLost},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED,
     "somebody reset the device or destroyed its primary context: open a new "
     "kiln::Service, and get the kernel from the new service"},
    {CUDA_ERROR_ASSERT, kLost},
    {CUDA_ERROR_HARDWARE_STACK_ERROR, kLost},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, kLost},
    {CUDA_ERROR_MISALIGNED_ADDRESS, kLost},
    {CUDA_ERROR_INVALID_ADDRESS_SPACE, kLost},
    {CUDA_ERROR_INVALID_PC, kLost},
    {CUDA_ERROR_LAUNCH_FAILED, kLost},
    {CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
     "launch fewer blocks: all of them must fit the device at the same time"},
    {CUDA_ERROR_SYSTEM_NOT_READY, "start nvidia-fabricmanager, or wait for it"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
     "libcuda and the kernel's module are of different versions: restart the machine"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
     "take the cuda-compat folder out of LD_LIBRARY_PATH: it is not for this device"},
    {CUDA_ERROR_MPS_CONNECTION_FAILED, "look at the MPS daemon, or stop it"},
    {CUDA_ERROR_MPS_SERVER_NOT_READY, "look at the MPS daemon, or wait for it"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, kCapture},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, kBrokenCapture},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, kBrokenCapture},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
     "let the stream that began the capture wait for all other streams before the "
     "capture ends"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, kBrokenCapture},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
     "a stream is being captured: use a stream other than the null stream"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
     "end the capture on the thread that began the capture"},
    {CUDA_ERROR_INVALID_CLUSTER_SIZE,
     "make the cluster smaller: this device has no room for it"},
    {CUDA_ERROR_FUNCTION_NOT_LOADED, "load the kernel before the capture begins"},
}};

std::string_view remedy_for(CUresult result) {
  const auto* const found = std::ranges::find(kRemedies, result, &Remedy::result);
  return found == kRemedies.end() ? "" : found->text;
}

}  // namespace

tl::unexpected<Error> driver_error(const DriverTable& table, CUresult result,
                                   std::string_view call, std::string_view on) {
  const char* name = nullptr;
  const char* text = nullptr;
  // The driver may have no name for its own result; the message has the number.
  if (table.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr)
    name = "an unknown error";
  if (table.cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr)
    text = "the driver has no text for this error";
  const std::string_view remedy = remedy_for(result);
  return fail(ErrorCode::kDevice, "{}{}{}: {} ({}): {}{}{}", call,
              on.empty() ? "" : ", ", on, name, static_cast<int>(result), text,
              remedy.empty() ? "" : "; ", remedy);
}

void log_failure(const DriverTable& table, CUresult result, std::string_view call,
                 std::string_view on) noexcept {
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED)
    return;
  try {
    log(LogLevel::kDebug, {driver_error(table, result, call, on).value().message});
  } catch (const std::bad_alloc&) {
    return;  // no memory to log it
  }
}

}  // namespace kiln::device
