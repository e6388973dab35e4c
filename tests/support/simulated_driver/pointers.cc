// Whose memory a pointer is.

#include "tests/support/simulated_driver/abi_functions.h"

namespace {

template <typename Value>
CUresult write(void* out, Value value) {
  *static_cast<Value*>(out) = value;
  return CUDA_SUCCESS;
}

unsigned memory_type(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kUnknown:
      return 0;
    case MemoryKind::kHost:
    case MemoryKind::kRegistered:
      return CU_MEMORYTYPE_HOST;
    case MemoryKind::kDevice:
    case MemoryKind::kManaged:
      return CU_MEMORYTYPE_DEVICE;
  }
  return 0;
}

// What drivers leave for memory that is none of CUDA's: zeros, and device -2.
// One row an attribute. NOLINTNEXTLINE(readability-function-size)
CUresult tell(CUdeviceptr start, const Allocation& owner, CUdeviceptr pointer,
              CUpointer_attribute which, void* out) {
  const bool is_known = owner.kind != MemoryKind::kUnknown;
  const bool is_for_host = is_known && owner.kind != MemoryKind::kDevice;
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return write(out, owner.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return write(out, memory_type(owner.kind));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return write(out, is_known ? pointer : CUdeviceptr{0});
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return write(out, is_for_host ? pointer : CUdeviceptr{0});
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return write(out, 0U);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return write(out, owner.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return write(out, owner.kind == MemoryKind::kManaged ? 1U : 0U);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return write(out, owner.device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return write(out, start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return write(out, owner.size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return write(out, is_known ? 1U : 0U);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return write(out, 0U);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return write(out, std::uint64_t{CU_MEM_HANDLE_TYPE_NONE});
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return write(out, owner.pool);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;  // of a real driver, perhaps
  }
}

CUresult tell(const Simulator& simulator, CUdeviceptr pointer,
              CUpointer_attribute which, void* out) {
  const auto found = simulator.allocation_at(pointer);
  if (found == simulator.allocations.end())
    return tell(0, {.device = CU_DEVICE_INVALID}, pointer, which, out);
  return tell(found->first, found->second, pointer, which, out);
}

}  // namespace

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* which, void** out,
                                CUdeviceptr pointer) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (which == nullptr || out == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i)
      result = tell(simulator, pointer, which[i], out[i]);
    return result;
  });
}

// Unlike its plural it has no answer for memory that is none of CUDA's.
CUresult cuPointerGetAttribute(void* out, CUpointer_attribute which,
                               CUdeviceptr pointer) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (out == nullptr ||
        simulator.allocation_at(pointer) == simulator.allocations.end())
      return CUDA_ERROR_INVALID_VALUE;
    return tell(simulator, pointer, which, out);
  });
}
