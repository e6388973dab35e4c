// Device memory is host memory, each block known by its address, its size and its
// context. Copies and fills are done before they return, on a stream or not, unless
// they are captured.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tests/support/simulated_driver/capture.h"
#include "tests/support/simulated_driver/simulator.h"

using kiln::simulated::Allocation;
using kiln::simulated::enter;
using kiln::simulated::MemoryWork;
using kiln::simulated::Needs;
using kiln::simulated::Simulator;
using kiln::simulated::Stream;

namespace {

void* address(CUdeviceptr pointer) {
  return reinterpret_cast<void*>(pointer);  // NOLINT(performance-no-int-to-ptr)
}

constexpr std::size_t kAlignment = 256;
/// From here on a block is mapped. AddressSanitizer would fill shadow memory for all of
/// one that malloc gave, an eighth of it, though nobody touches it.
constexpr std::size_t kLeastMapped = std::size_t{1} << 20;

std::size_t rounded_up(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

/// Of a mapped block: with a page on each side that nobody may touch.
std::size_t mapped_bytes(std::size_t size) {
  return rounded_up(size, page_bytes()) + 2 * page_bytes();
}

/// Ends where its guard begins, but for the alignment. Null where there is no memory.
void* map_block(std::size_t size) {
  const std::size_t all = mapped_bytes(size);
  void* const map = ::mmap(nullptr, all, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED)
    return nullptr;
  auto* const pages = static_cast<std::byte*>(map) + page_bytes();
  if (::mprotect(pages, all - 2 * page_bytes(), PROT_READ | PROT_WRITE) != 0) {
    ::munmap(map, all);
    return nullptr;
  }
  return static_cast<std::byte*>(map) + all - page_bytes() -
         rounded_up(size, kAlignment);
}

void unmap_block(void* block, std::size_t size) {
  std::byte* const end = static_cast<std::byte*>(block) + rounded_up(size, kAlignment);
  const std::size_t all = mapped_bytes(size);
  ::munmap(end + page_bytes() - all, all);
}

void* make_block(std::size_t size) {
  return size >= kLeastMapped
             ? map_block(size)
             : std::aligned_alloc(kAlignment, rounded_up(size, kAlignment));
}

void end_block(void* block, std::size_t size) {
  if (size >= kLeastMapped)
    unmap_block(block, size);
  else
    std::free(block);
}

}  // namespace

namespace kiln::simulated {

CUdeviceptr Simulator::allocate(CUcontext context, std::size_t size, bool is_host) {
  Device& device = device_of(context);
  const std::size_t left = device.model.memory_bytes - device.allocated_bytes;
  if (size > left)
    return 0;
  void* const memory = make_block(size);
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
  end_block(address(pointer), found->second.size);
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

const Allocation* Simulator::allocation_at(CUdeviceptr pointer) const {
  return is_allocated(pointer, 1) ? &std::prev(allocations.upper_bound(pointer))->second
                                  : nullptr;
}

void perform(const MemoryWork& work) {
  if (work.from != 0) {
    std::memmove(address(work.to), address(work.from), work.size);
    return;
  }
  auto* const bytes = static_cast<unsigned char*>(address(work.to));
  for (std::size_t at = 0; at < work.size; at += work.value_bytes)
    std::memcpy(bytes + at, &work.value, work.value_bytes);  // little-endian
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
  return kiln::simulated::admit_work(simulator, *stream);
}

// No graph here has a node that allocates.
CUresult admit_allocation(Simulator& simulator, const Order& order) {
  const CUresult result = admit(simulator, order);
  if (result == CUDA_SUCCESS && order.is_on_stream &&
      simulator.stream(order.stream)->capture)
    return CUDA_ERROR_NOT_SUPPORTED;
  return result;
}

// Now, or whenever the graph is launched.
void perform_or_capture(Simulator& simulator, const MemoryWork& work,
                        const Order& order) {
  Stream* const stream = order.is_on_stream ? simulator.stream(order.stream) : nullptr;
  if (stream != nullptr && stream->capture)
    stream->capture->nodes.emplace_back(work);
  else
    kiln::simulated::perform(work);
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
    perform_or_capture(simulator, {.to = what.to, .from = what.from, .size = what.size},
                       order);
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
    perform_or_capture(simulator,
                       {.to = to,
                        .from = 0,
                        .size = count * sizeof(Value),
                        .value = value,
                        .value_bytes = sizeof(Value)},
                       order);
    return CUDA_SUCCESS;
  });
}

CUresult allocate(const char* symbol, CUdeviceptr* pointer, std::size_t size,
                  const Order& order) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (pointer == nullptr || size == 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = admit_allocation(simulator, order);
        refused != CUDA_SUCCESS)
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
    if (const CUresult refused = admit_allocation(simulator, order);
        refused != CUDA_SUCCESS)
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
