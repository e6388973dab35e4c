// Memory of the device, of the host and of both, asked for and given back.

#include "tests/support/simulated_driver/abi_functions.h"
#include "tests/support/simulated_driver/capture.h"

using kiln::simulated::Order;

namespace {

void put(CUdeviceptr made, CUdeviceptr* out) {
  *out = made;
}

void put(CUdeviceptr made, void** out) {
  *out = address_of(made);
}

template <typename Pointer>
CUresult allocate(const char* symbol, Pointer* pointer, std::size_t size,
                  MemoryKind kind, unsigned host_flags = 0) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (pointer == nullptr || size == 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (kind != MemoryKind::kHost) {
      const CUresult refused = simulator.check_not_capturing();
      if (refused != CUDA_SUCCESS)
        return refused;
    }
    const CUdeviceptr made = simulator.allocate(simulator.current_handle(), size, kind);
    if (made == 0)
      return CUDA_ERROR_OUT_OF_MEMORY;
    simulator.allocations[made].host_flags = host_flags;
    put(made, pointer);
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
    if (found == simulator.allocations.end() ||
        found->second.kind == MemoryKind::kRegistered)
      return CUDA_ERROR_INVALID_VALUE;
    const Allocation& freed = found->second;
    if (is_host != (freed.kind == MemoryKind::kHost && freed.pool == nullptr))
      return CUDA_ERROR_INVALID_VALUE;
    simulator.free(pointer);
    return CUDA_SUCCESS;
  });
}

/// The block that a host pointer is in; null for one that is not pinned.
const Allocation* pinned_at(const Simulator& simulator, const void* pointer) {
  const auto found = simulator.allocation_at(pointer_to(pointer));
  const bool is_pinned = found != simulator.allocations.end() &&
                         (found->second.kind == MemoryKind::kHost ||
                          found->second.kind == MemoryKind::kRegistered);
  return is_pinned ? &found->second : nullptr;
}

}  // namespace

namespace kiln::simulated {

// No graph here has a node that allocates.
CUresult admit_allocation(Simulator& simulator, const Order& order) {
  const CUresult result = admit(simulator, order);
  if (result == CUDA_SUCCESS && order.is_on_stream &&
      simulator.stream(order.stream)->capture)
    return CUDA_ERROR_NOT_SUPPORTED;
  return result;
}

}  // namespace kiln::simulated

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t size) {
  return allocate(__func__, pointer, size, MemoryKind::kDevice);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, std::size_t* pitch, std::size_t width,
                            std::size_t height, unsigned element_bytes) {
  constexpr std::size_t kRow = 512;  // CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT
  const bool is_element =
      element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
  const std::size_t row =
      width > SIZE_MAX - kRow ? width : (width + kRow - 1) / kRow * kRow;
  std::size_t size = 0;
  const bool is_good = pitch != nullptr && is_element && width > 0 &&
                       !__builtin_mul_overflow(row, height, &size);
  const CUresult result =
      allocate(__func__, is_good ? pointer : nullptr, size, MemoryKind::kDevice);
  if (result == CUDA_SUCCESS && is_good)
    *pitch = row;
  return result;
}

CUresult cuMemAllocManaged(CUdeviceptr* pointer, std::size_t size, unsigned flags) {
  const bool is_good = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
  return allocate(__func__, is_good ? pointer : nullptr, size, MemoryKind::kManaged);
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  return release(__func__, pointer, false, {});
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return release(__func__, pointer, false, {true, stream});
}

CUresult cuMemFreeHost(void* pointer) {
  return release(__func__, pointer_to(pointer), true, {});
}

CUresult cuMemAllocHost_v2(void** pointer, std::size_t size) {
  return allocate(__func__, pointer, size, MemoryKind::kHost);
}

CUresult cuMemHostAlloc(void** pointer, std::size_t size, unsigned flags) {
  constexpr unsigned kKnown = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
                              CU_MEMHOSTALLOC_WRITECOMBINED;
  const bool is_good = (flags & ~kKnown) == 0;
  return allocate(__func__, is_good ? pointer : nullptr, size, MemoryKind::kHost,
                  flags);
}

CUresult cuMemHostRegister_v2(void* pointer, std::size_t size, unsigned flags) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE |
                                CU_MEMHOSTREGISTER_DEVICEMAP |
                                CU_MEMHOSTREGISTER_READ_ONLY;
    const CUdeviceptr start = pointer_to(pointer);
    if (start == 0 || size == 0 || size > SIZE_MAX - start)
      return CUDA_ERROR_INVALID_VALUE;
    if ((flags & ~kKnown) != 0)
      return (flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0 ? CUDA_ERROR_NOT_PERMITTED
                                                        : CUDA_ERROR_INVALID_VALUE;
    const auto next = simulator.allocations.lower_bound(start);
    if (simulator.allocation_at(start) != simulator.allocations.end() ||
        (next != simulator.allocations.end() && next->first < start + size))
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    const CUcontext context = simulator.current_handle();
    simulator.allocations[start] = {.size = size,
                                    .context = context,
                                    .device = simulator.device_of(context).ordinal,
                                    .kind = MemoryKind::kRegistered,
                                    .host_flags = flags,
                                    .id = simulator.next_id()};
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostUnregister(void* pointer) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    const auto found = simulator.allocations.find(pointer_to(pointer));
    if (found == simulator.allocations.end() ||
        found->second.kind != MemoryKind::kRegistered)
      return pointer == nullptr ? CUDA_ERROR_INVALID_VALUE
                                : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    simulator.free(pointer_to(pointer));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* pointer,
                                      unsigned flags) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    return flags != 0 || pinned_at(simulator, pointer) == nullptr
               ? CUDA_ERROR_INVALID_VALUE
               : answer(device, pointer_to(pointer));
  });
}

CUresult cuMemHostGetFlags(unsigned* flags, void* pointer) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    const Allocation* const found = pinned_at(simulator, pointer);
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE
                            : answer(flags, found->host_flags);
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* size,
                                 CUdeviceptr pointer) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    const auto found = simulator.allocation_at(pointer);
    if (found == simulator.allocations.end())
      return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr)
      *base = found->first;
    if (size != nullptr)
      *size = found->second.size;
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
