// Results in words, as drivers have them. Of those that Kiln can never meet there is no
// row: for them the simulated driver is one that is too old to know.

#include <algorithm>
#include <array>

#include "tests/support/simulated_driver/abi_functions.h"
#include "tests/support/simulated_driver/functions.h"

namespace {

struct Row {
  CUresult result;
  const char* name;
  const char* text;
};

#define KILN_ERROR(name, text) \
  { CUDA_ERROR_##name, "CUDA_ERROR_" #name, text }
constexpr auto kRows = std::to_array<Row>({
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    KILN_ERROR(INVALID_VALUE, "invalid argument"),
    KILN_ERROR(OUT_OF_MEMORY, "out of memory"),
    KILN_ERROR(NOT_INITIALIZED, "initialization error"),
    KILN_ERROR(DEINITIALIZED, "driver shutting down"),
    KILN_ERROR(STUB_LIBRARY, "CUDA driver is a stub library"),
    KILN_ERROR(DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    KILN_ERROR(NO_DEVICE, "no CUDA-capable device is detected"),
    KILN_ERROR(INVALID_DEVICE, "invalid device ordinal"),
    KILN_ERROR(INVALID_IMAGE, "device kernel image is invalid"),
    KILN_ERROR(INVALID_CONTEXT, "invalid device context"),
    KILN_ERROR(MAP_FAILED, "mapping of buffer object failed"),
    KILN_ERROR(NO_BINARY_FOR_GPU,
               "no kernel image is available for execution on the device"),
    KILN_ERROR(ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    KILN_ERROR(PEER_ACCESS_UNSUPPORTED,
               "peer access is not supported between these two devices"),
    KILN_ERROR(INVALID_PTX, "a PTX JIT compilation failed"),
    KILN_ERROR(NVLINK_UNCORRECTABLE,
               "uncorrectable NVLink error detected during the execution"),
    KILN_ERROR(JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found"),
    KILN_ERROR(UNSUPPORTED_PTX_VERSION,
               "the provided PTX was compiled with an unsupported toolchain."),
    KILN_ERROR(JIT_COMPILATION_DISABLED, "PTX JIT compilation was disabled"),
    KILN_ERROR(UNSUPPORTED_EXEC_AFFINITY,
               "provided execution affinity is not supported"),
    KILN_ERROR(INVALID_SOURCE, "device kernel source is invalid"),
    KILN_ERROR(FILE_NOT_FOUND, "file not found"),
    KILN_ERROR(SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found"),
    KILN_ERROR(OPERATING_SYSTEM,
               "OS call failed or operation not supported on this OS"),
    KILN_ERROR(INVALID_HANDLE, "invalid resource handle"),
    KILN_ERROR(ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    KILN_ERROR(NOT_FOUND, "named symbol not found"),
    KILN_ERROR(NOT_READY, "device not ready"),
    KILN_ERROR(ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    KILN_ERROR(LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    KILN_ERROR(LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    KILN_ERROR(PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    KILN_ERROR(PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    KILN_ERROR(PRIMARY_CONTEXT_ACTIVE,
               "cannot set while device is active in this process"),
    KILN_ERROR(CONTEXT_IS_DESTROYED, "context is destroyed"),
    KILN_ERROR(ASSERT, "device-side assert triggered"),
    KILN_ERROR(HARDWARE_STACK_ERROR, "hardware stack error"),
    KILN_ERROR(ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    KILN_ERROR(MISALIGNED_ADDRESS, "misaligned address"),
    KILN_ERROR(INVALID_ADDRESS_SPACE,
               "operation not supported on global/shared address space"),
    KILN_ERROR(INVALID_PC, "invalid program counter"),
    KILN_ERROR(LAUNCH_FAILED, "unspecified launch failure"),
    KILN_ERROR(COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
    KILN_ERROR(HOST_MEMORY_ALREADY_REGISTERED,
               "part or all of the requested memory range is already mapped"),
    KILN_ERROR(HOST_MEMORY_NOT_REGISTERED,
               "pointer does not correspond to a registered memory region"),
    KILN_ERROR(NOT_PERMITTED, "operation not permitted"),
    KILN_ERROR(NOT_SUPPORTED, "operation not supported"),
    KILN_ERROR(SYSTEM_NOT_READY, "system not yet initialized"),
    KILN_ERROR(SYSTEM_DRIVER_MISMATCH,
               "system has unsupported display driver / cuda driver combination"),
    KILN_ERROR(COMPAT_NOT_SUPPORTED_ON_DEVICE,
               "forward compatibility was attempted on non supported HW"),
    KILN_ERROR(STREAM_CAPTURE_UNSUPPORTED,
               "operation not permitted when stream is capturing"),
    KILN_ERROR(STREAM_CAPTURE_INVALIDATED,
               "operation failed due to a previous error during capture"),
    KILN_ERROR(STREAM_CAPTURE_UNMATCHED,
               "capture was not ended in the same stream as it began"),
    KILN_ERROR(STREAM_CAPTURE_MERGE,
               "operation would result in a merge of separate capture sequences"),
    KILN_ERROR(STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    KILN_ERROR(STREAM_CAPTURE_ISOLATION,
               "dependency created on uncaptured work in another stream"),
    KILN_ERROR(
        CAPTURED_EVENT,
        "operation not permitted on an event last recorded in a capturing stream"),
    KILN_ERROR(
        STREAM_CAPTURE_IMPLICIT,
        "operation would make the legacy stream depend on a capturing blocking stream"),
    KILN_ERROR(
        STREAM_CAPTURE_WRONG_THREAD,
        "attempt to terminate a thread-local capture sequence from another thread"),
    KILN_ERROR(TIMEOUT, "wait operation timed out"),
    KILN_ERROR(
        GRAPH_EXEC_UPDATE_FAILURE,
        "the graph update was not performed because it included changes which violated "
        "constraints specific to instantiated graph update"),
    KILN_ERROR(INVALID_CLUSTER_SIZE, "cluster misconfiguration"),
    KILN_ERROR(FUNCTION_NOT_LOADED, "function not loaded"),
    KILN_ERROR(UNKNOWN, "unknown error"),
});
#undef KILN_ERROR

const Row* find(int result) {
  const auto* const found = std::find_if(
      kRows.begin(), kRows.end(),
      [&](const Row& row) { return static_cast<int>(row.result) == result; });
  return found == kRows.end() ? nullptr : found;
}

CUresult tell(const char* symbol, CUresult result, const char** out,
              const char* Row::*member) {
  return enter(symbol, Needs::kNothing, [&](Simulator&) {
    if (out == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const Row* const row = find(static_cast<int>(result));
    *out = row == nullptr ? nullptr : row->*member;
    return row == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

}  // namespace

bool kiln::simulated::is_result(int number) {
  return number != CUDA_SUCCESS && find(number) != nullptr;
}

CUresult cuGetErrorName(CUresult result, const char** name) {
  return tell(__func__, result, name, &Row::name);
}

CUresult cuGetErrorString(CUresult result, const char** text) {
  return tell(__func__, result, text, &Row::text);
}
