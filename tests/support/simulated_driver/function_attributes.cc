// cuFunc*: functions of a module, and what they are like.

#include "tests/support/simulated_driver/function_attributes.h"

#include <algorithm>

#include "tests/support/simulated_driver/abi_functions.h"
#include "tests/support/simulated_driver/entry_points.h"

namespace kiln::simulated {

int max_threads(const EntryPoint& entry) {
  constexpr int kRegisterUnit = 8;
  const int registers =
      (static_cast<int>(std::min(entry.registers, 256U)) + kRegisterUnit - 1) /
      kRegisterUnit * kRegisterUnit;
  const int by_registers =
      registers == 0 ? kMaxThreadsPerBlock
                     : kRegistersPerBlock / (registers * kWarpSize) * kWarpSize;
  const int by_bounds =
      static_cast<int>(std::min<unsigned>(entry.max_threads, kMaxThreadsPerBlock));
  return std::min({kMaxThreadsPerBlock, by_registers, by_bounds});
}

int max_dynamic_shared_bytes(const EntryPoint& entry,
                             const FunctionSettings& settings) {
  if (settings.max_dynamic_shared_bytes >= 0)
    return settings.max_dynamic_shared_bytes;
  return std::max(0, kDefaultSharedBytes - static_cast<int>(entry.static_shared_bytes));
}

std::optional<int> function_attribute(const Image& image, const EntryPoint& entry,
                                      const FunctionSettings& settings,
                                      const DeviceModel& model,
                                      CUfunction_attribute which) {
  const auto version = [](Capability each) { return each.major * 10 + each.minor; };
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return max_threads(entry);
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return static_cast<int>(entry.static_shared_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return static_cast<int>(entry.registers);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      return version(image.arch.base);
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return version(image.is_ptx ? model.capability : image.arch.base);
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return max_dynamic_shared_bytes(entry, settings);
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return settings.carveout;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return settings.allows_large_clusters;
    default:
      return which >= 0 && which < CU_FUNC_ATTRIBUTE_MAX ? std::optional<int>(0)
                                                         : std::nullopt;
  }
}

CUresult set_function_attribute(const EntryPoint& entry, const DeviceModel& model,
                                CUfunction_attribute which, int value,
                                FunctionSettings& settings) {
  const int most = model.shared_kib_per_block_optin * 1024 -
                   static_cast<int>(entry.static_shared_bytes);
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > most)
        return CUDA_ERROR_INVALID_VALUE;
      settings.max_dynamic_shared_bytes = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100)
        return CUDA_ERROR_INVALID_VALUE;
      settings.carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      if (value < 0 || value > 1)
        return CUDA_ERROR_INVALID_VALUE;
      settings.allows_large_clusters = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace kiln::simulated

namespace {

/// `use(simulator, function)` for a function that there is.
template <typename Use>
CUresult with_function(const char* symbol, CUfunction function, const Use& use) {
  return with(
      symbol, Needs::kContext, CUDA_ERROR_INVALID_HANDLE,
      [&](Simulator& simulator) { return simulator.functions.find(function); }, use);
}

}  // namespace

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which,
                            CUfunction function) {
  return with_function(__func__, function,
                       [&](Simulator& simulator, const Function& found) {
                         const auto got = kiln::simulated::function_attribute(
                             *found.image, *found.entry, found.settings,
                             simulator.device_of(found.context).model, which);
                         return got ? answer(value, *got) : CUDA_ERROR_INVALID_VALUE;
                       });
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which,
                            int value) {
  return with_function(__func__, function, [&](Simulator& simulator, Function& found) {
    return kiln::simulated::set_function_attribute(
        *found.entry, simulator.device_of(found.context).model, which, value,
        found.settings);
  });
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache) {
  return with_function(__func__, function,
                       [](Simulator&, const Function&) { return CUDA_SUCCESS; });
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  return with_function(__func__, function, [&](Simulator&, const Function& found) {
    return answer(module, found.module);
  });
}

CUresult cuFuncGetName(const char** name, CUfunction function) {
  return with_function(__func__, function,
                       [&](Simulator& simulator, const Function& found) {
                         return answer(name, simulator.intern(found.entry->name));
                       });
}

CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset,
                            std::size_t* size) {
  return with_function(__func__, function, [&](Simulator&, const Function& found) {
    return kiln::simulated::get_parameter(*found.entry, index, offset, size);
  });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  return with_function(__func__, function, [&](Simulator&, const Function& found) {
    return answer(state, found.is_loaded ? CU_FUNCTION_LOADING_STATE_LOADED
                                         : CU_FUNCTION_LOADING_STATE_UNLOADED);
  });
}

CUresult cuFuncLoad(CUfunction function) {
  return with_function(__func__, function, [](Simulator&, Function& found) {
    found.is_loaded = true;
    return CUDA_SUCCESS;
  });
}
