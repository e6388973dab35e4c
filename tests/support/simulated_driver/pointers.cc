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

#define KILN_ATTRIBUTE(name, value) \
  case CU_POINTER_ATTRIBUTE_##name: \
    return write(out, value)
// What drivers leave for memory that is none of CUDA's: zeros, and device -2.
// One row an attribute. NOLINTNEXTLINE(readability-function-size)
CUresult tell(CUdeviceptr start, const Allocation& owner, CUdeviceptr pointer,
              CUpointer_attribute which, void* out) {
  const bool is_known = owner.kind != MemoryKind::kUnknown;
  const bool is_for_host = is_known && owner.kind != MemoryKind::kDevice;
  switch (which) {
    KILN_ATTRIBUTE(CONTEXT, owner.context);
    KILN_ATTRIBUTE(MEMORY_TYPE, memory_type(owner.kind));
    KILN_ATTRIBUTE(DEVICE_POINTER, is_known ? pointer : CUdeviceptr{0});
    KILN_ATTRIBUTE(HOST_POINTER, is_for_host ? pointer : CUdeviceptr{0});
    KILN_ATTRIBUTE(SYNC_MEMOPS, 0U);
    KILN_ATTRIBUTE(BUFFER_ID, owner.id);
    KILN_ATTRIBUTE(MEMORY_BLOCK_ID, owner.id);
    KILN_ATTRIBUTE(IS_MANAGED, owner.kind == MemoryKind::kManaged ? 1U : 0U);
    KILN_ATTRIBUTE(DEVICE_ORDINAL, owner.device);
    KILN_ATTRIBUTE(RANGE_START_ADDR, start);
    KILN_ATTRIBUTE(RANGE_SIZE, owner.size);
    KILN_ATTRIBUTE(MAPPED, is_known ? 1U : 0U);
    KILN_ATTRIBUTE(IS_LEGACY_CUDA_IPC_CAPABLE, 0U);
    KILN_ATTRIBUTE(IS_GPU_DIRECT_RDMA_CAPABLE, 0U);
    KILN_ATTRIBUTE(ALLOWED_HANDLE_TYPES, std::uint64_t{CU_MEM_HANDLE_TYPE_NONE});
    KILN_ATTRIBUTE(MEMPOOL_HANDLE, owner.pool);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;  // of a real driver, perhaps
  }
}

#undef KILN_ATTRIBUTE

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
