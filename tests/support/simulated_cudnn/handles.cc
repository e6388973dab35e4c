// Versions, errors and handles.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/support/simulated_cudnn/abi.h"
#include "tests/support/simulated_cudnn/simulator.h"

namespace kiln::simulated {
namespace {

constexpr std::size_t kOwnVersion = 91900;
constexpr int kNotInitialized = 1001;
constexpr int kDeviceAllocationFailed = 4004;

}  // namespace

std::size_t cudnnGetVersion() {
  CudnnSimulator& all = simulator();
  {
    const MutexLock lock(all.mutex);
    if (all.version != 0)
      return all.version;
  }
  // A plan worker asks before there is a driver or a cuDNN to stand in for.
  if (kiln_simulated_cudnn_open(nullptr, nullptr) != 0)
    return kOwnVersion;
  return libraries().cudnn.cudnnGetVersion();
}

const char* cudnnGetErrorString(Status status) {
  return libraries().cudnn.cudnnGetErrorString(status);
}

void cudnnGetLastErrorString(char* text, std::size_t room) {
  CudnnSimulator& all = simulator();
  {
    const MutexLock lock(all.mutex);
    const auto own = all.errors.extract(std::this_thread::get_id());
    if (!own.empty() && room != 0) {
      const std::size_t length = std::min(own.mapped().size(), room - 1);
      std::memcpy(text, own.mapped().data(), length);
      text[length] = '\0';
      return;
    }
  }
  libraries().cudnn.cudnnGetLastErrorString(text, room);
}

Status cudnnCreate(Handle* handle) {
  if (const auto instead = injected(__func__))
    return *instead;
  const auto& driver = libraries().driver;
  HandleState made;
  if (driver.cuCtxGetCurrent(&made.context) != CUDA_SUCCESS ||
      made.context == nullptr || driver.cuCtxGetDevice(&made.device) != CUDA_SUCCESS)
    return refuse(kNotInitialized, "cudaGetDeviceCount(&count) != cudaSuccess");
  constexpr std::size_t kBytes = 256;
  if (const CUresult result = driver.cuMemAlloc(&made.memory, kBytes);
      result != CUDA_SUCCESS)
    return refuse(kDeviceAllocationFailed, fmt::format("cudaMalloc returned error ({})",
                                                       static_cast<int>(result)));
  end_with_the_process();
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  // Never followed, never used again. NOLINTNEXTLINE(performance-no-int-to-ptr)
  *handle = reinterpret_cast<Handle>(std::uintptr_t{0xd0d00000} + ++all.handles_made);
  all.handles[*handle] = made;
  return Status::kSuccess;
}

Status cudnnDestroy(Handle handle) {
  if (const auto instead = injected(__func__))
    return *instead;
  HandleState gone;
  {
    CudnnSimulator& all = simulator();
    const MutexLock lock(all.mutex);
    const auto found = all.handles.extract(handle);
    if (!found.empty())
      gone = found.mapped();
  }
  if (gone.context == nullptr)
    return refuse(kBadParam, "no such handle");
  const auto& driver = libraries().driver;
  if (driver.cuCtxPushCurrent(gone.context) == CUDA_SUCCESS) {
    static_cast<void>(driver.cuMemFree(gone.memory));
    static_cast<void>(driver.cuCtxPopCurrent(nullptr));
  }
  return Status::kSuccess;
}

Status cudnnSetStream(Handle handle, CUstream_st* stream) {
  if (const auto instead = injected(__func__))
    return *instead;
  CudnnSimulator& all = simulator();
  {
    const MutexLock lock(all.mutex);
    const auto found = all.handles.find(handle);
    if (found != all.handles.end()) {
      found->second.stream = stream;
      return Status::kSuccess;
    }
  }
  return refuse(kBadParam, "no such handle");
}

}  // namespace kiln::simulated
