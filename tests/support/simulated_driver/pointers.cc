// Whose memory a pointer is.

#include "tests/support/simulated_driver/simulator.h"

using kiln::simulated::Allocation;
using kiln::simulated::enter;
using kiln::simulated::Needs;
using kiln::simulated::Simulator;

namespace {

template <typename Value>
CUresult write(void* out, Value value) {
  *static_cast<Value*>(out) = value;
  return CUDA_SUCCESS;
}

unsigned memory_type(const Allocation& owner) {
  if (owner.context == nullptr)
    return 0;
  return owner.is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

// What drivers leave for memory that is none of CUDA's: zeros, and device -2.
CUresult tell(const Allocation& owner, CUpointer_attribute which, void* out) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return write(out, owner.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return write(out, memory_type(owner));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return write(out, 0U);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return write(out, owner.device);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;  // of a real driver, perhaps
  }
}

}  // namespace

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* which, void** out,
                                CUdeviceptr pointer) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (which == nullptr || out == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const Allocation unknown{.device = CU_DEVICE_INVALID};
    const Allocation* const found = simulator.allocation_at(pointer);
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i)
      result = tell(found == nullptr ? unknown : *found, which[i], out[i]);
    return result;
  });
}
