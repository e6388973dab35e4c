// Device memory is host memory, each block known by its address, its size and its
// context. Copies are done before they return, on a stream or not.

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/support/simulated_driver/capture.h"
#include "tests/support/simulated_driver/simulator.h"

using kiln::simulated::enter;
using kiln::simulated::Needs;
using kiln::simulated::Simulator;
using kiln::simulated::Stream;

namespace {

void* address(CUdeviceptr pointer) {
  return reinterpret_cast<void*>(pointer);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

namespace kiln::simulated {

CUdeviceptr Simulator::allocate(CUcontext context, std::size_t size, bool is_host) {
  constexpr std::size_t kAlignment = 256;
  Device& device = device_of(context);
  const std::size_t left = device.model.memory_bytes - device.allocated_bytes;
  if (size > left)
    return 0;
  void* const memory =
      std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr)
    return 0;
  if (!is_host)
    device.allocated_bytes += size;
  const auto pointer = reinterpret_cast<CUdeviceptr>(memory);
  allocations[pointer] = {
      .size = size, .context = context, .device = device.ordinal, .is_host = is_host};
  return pointer;
}

bool Simulator::free(CUdeviceptr pointer) {
  const auto found = allocations.find(pointer);
  if (found == allocations.end())
    return false;
  if (!found->second.is_host)
    device(found->second.device)->allocated_bytes -= found->second.size;
  std::free(address(pointer));
  allocations.erase(found);
  return true;
}

bool Simulator::is_allocated(CUdeviceptr pointer, std::size_t size) const {
  auto after = allocations.upper_bound(pointer);
  if (after == allocations.begin())
    return false;
  const auto& [start, allocation] = *--after;
  const std::size_t offset = pointer - start;
  return offset <= allocation.size && size <= allocation.size - offset;
}

}  // namespace kiln::simulated

namespace {

/// A stream, or none for the calls that wait.
struct Order {
  bool is_on_stream = false;
  CUstream stream = nullptr;
};

CUresult admit(Simulator& simulator, const Order& order) {
  if (!order.is_on_stream)
    return simulator.check_not_capturing();
  const Stream* const stream = simulator.stream(order.stream);
  if (stream == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture)
    return CUDA_ERROR_NOT_SUPPORTED;  // a graph here is its launches
  return kiln::simulated::admit_work(simulator, *stream);
}

enum class Side { kDevice, kHost, kEither };

struct Copy {
  CUdeviceptr to = 0;
  Side to_side = Side::kDevice;
  CUdeviceptr from = 0;
  Side from_side = Side::kDevice;
  std::size_t size = 0;
};

// Of the host's memory only the allocations made here are known.
bool is_good(const Simulator& simulator, CUdeviceptr pointer, Side side,
             std::size_t size) {
  if (pointer == 0)
    return false;
  return side != Side::kDevice || simulator.is_allocated(pointer, size);
}

CUresult copy(const char* symbol, const Copy& what, const Order& order) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (const CUresult refused = admit(simulator, order); refused != CUDA_SUCCESS)
      return refused;
    if (what.size == 0)
      return CUDA_SUCCESS;
    if (!is_good(simulator, what.to, what.to_side, what.size) ||
        !is_good(simulator, what.from, what.from_side, what.size))
      return CUDA_ERROR_INVALID_VALUE;
    std::memmove(address(what.to), address(what.from), what.size);
    return CUDA_SUCCESS;
  });
}

CUdeviceptr host(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

template <typename Value>
CUresult set(const char* symbol, CUdeviceptr to, Value value, std::size_t count,
             const Order& order) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (const CUresult refused = admit(simulator, order); refused != CUDA_SUCCESS)
      return refused;
    if (count == 0)
      return CUDA_SUCCESS;
    if (to % sizeof(Value) != 0 || count > SIZE_MAX / sizeof(Value) ||
        !simulator.is_allocated(to, count * sizeof(Value)))
      return CUDA_ERROR_INVALID_VALUE;
    std::fill_n(static_cast<Value*>(address(to)), count, value);
    return CUDA_SUCCESS;
  });
}

CUresult allocate(const char* symbol, CUdeviceptr* pointer, std::size_t size,
                  const Order& order) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (pointer == nullptr || size == 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = admit(simulator, order); refused != CUDA_SUCCESS)
      return refused;
    const CUdeviceptr made =
        simulator.allocate(simulator.current_handle(), size, false);
    if (made == 0)
      return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = made;
    return CUDA_SUCCESS;
  });
}

CUresult release(const char* symbol, CUdeviceptr pointer, bool is_host,
                 const Order& order) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (const CUresult refused = admit(simulator, order); refused != CUDA_SUCCESS)
      return refused;
    if (pointer == 0)
      return CUDA_SUCCESS;
    const auto found = simulator.allocations.find(pointer);
    if (found == simulator.allocations.end() || found->second.is_host != is_host)
      return CUDA_ERROR_INVALID_VALUE;
    simulator.free(pointer);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t size) {
  return allocate(__func__, pointer, size, {});
}

CUresult cuMemAllocAsync(CUdeviceptr* pointer, std::size_t size, CUstream stream) {
  return allocate(__func__, pointer, size, {true, stream});
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  return release(__func__, pointer, false, {});
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return release(__func__, pointer, false, {true, stream});
}

CUresult cuMemFreeHost(void* pointer) {
  return release(__func__, host(pointer), true, {});
}

CUresult cuMemAllocHost_v2(void** pointer, std::size_t size) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (pointer == nullptr || size == 0)
      return CUDA_ERROR_INVALID_VALUE;
    const CUdeviceptr made = simulator.allocate(simulator.current_handle(), size, true);
    if (made == 0)
      return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = address(made);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetInfo_v2(std::size_t* left, std::size_t* total) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (left == nullptr || total == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const auto& device = simulator.device_of(simulator.current_handle());
    *total = device.model.memory_bytes;
    *left = *total - device.allocated_bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t size) {
  return copy(__func__, {to, Side::kEither, from, Side::kEither, size}, {});
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t size,
                       CUstream stream) {
  return copy(__func__, {to, Side::kEither, from, Side::kEither, size}, {true, stream});
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t size) {
  return copy(__func__, {to, Side::kDevice, host(from), Side::kHost, size}, {});
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t size,
                              CUstream stream) {
  return copy(__func__, {to, Side::kDevice, host(from), Side::kHost, size},
              {true, stream});
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t size) {
  return copy(__func__, {host(to), Side::kHost, from, Side::kDevice, size}, {});
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t size,
                              CUstream stream) {
  return copy(__func__, {host(to), Side::kHost, from, Side::kDevice, size},
              {true, stream});
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t size) {
  return copy(__func__, {to, Side::kDevice, from, Side::kDevice, size}, {});
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t size,
                              CUstream stream) {
  return copy(__func__, {to, Side::kDevice, from, Side::kDevice, size}, {true, stream});
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, std::size_t count) {
  return set(__func__, to, value, count, {});
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, std::size_t count) {
  return set(__func__, to, value, count, {});
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, std::size_t count) {
  return set(__func__, to, value, count, {});
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count,
                         CUstream stream) {
  return set(__func__, to, value, count, {true, stream});
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count,
                          CUstream stream) {
  return set(__func__, to, value, count, {true, stream});
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count,
                          CUstream stream) {
  return set(__func__, to, value, count, {true, stream});
}
