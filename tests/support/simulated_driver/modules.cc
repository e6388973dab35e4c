// cuModule*: an image in the current context.

#include <algorithm>

#include "tests/support/simulated_driver/jit_options.h"
#include "tests/support/simulated_driver/simulator.h"

using kiln::simulated::enter;
using kiln::simulated::JitOptions;
using kiln::simulated::Module;
using kiln::simulated::Needs;
using kiln::simulated::Simulator;

namespace {

CUresult load(Simulator& simulator, CUmodule* module, const void* image,
              const JitOptions& options) {
  if (module == nullptr || image == nullptr || !options.is_valid())
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = simulator.check_not_capturing(); refused != CUDA_SUCCESS)
    return refused;
  auto read = kiln::simulated::read_image(image);
  if (!read) {
    options.report(read.error().why);
    return read.error().result;
  }
  const auto loaded = simulator.load(
      simulator.current_handle(),
      std::make_shared<const kiln::simulated::Image>(*std::move(read)), nullptr);
  if (!loaded) {
    options.report(loaded.error().why);
    return loaded.error().result;
  }
  *module = *loaded;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    return load(simulator, module, image, {});
  });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count,
                            CUjit_option* options, void** values) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    return load(simulator, module, image,
                {.names = options, .values = values, .count = count});
  });
}

CUresult cuModuleUnload(CUmodule module) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    const Module* const found = simulator.modules.find(module);
    if (found == nullptr || found->context != simulator.current_handle())
      return CUDA_ERROR_INVALID_HANDLE;
    if (found->library != nullptr)
      return CUDA_ERROR_NOT_PERMITTED;
    simulator.unload(module);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    if (mode == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    *mode =
        simulator.settings.is_eager ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (function == nullptr || name == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const Module* const found = simulator.modules.find(module);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    const auto& entries = found->image->entry_points;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].name == name) {
        *function = found->functions[i];
        return CUDA_SUCCESS;
      }
    }
    return CUDA_ERROR_NOT_FOUND;
  });
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (count == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const Module* const found = simulator.modules.find(module);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    *count = static_cast<unsigned>(found->functions.size());
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned room,
                                    CUmodule module) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (functions == nullptr && room != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const Module* const found = simulator.modules.find(module);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    std::copy_n(found->functions.begin(),
                std::min<std::size_t>(room, found->functions.size()), functions);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* pointer, std::size_t* bytes, CUmodule module,
                              const char* name) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (name == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const Module* const found = simulator.modules.find(module);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    for (const auto& global : found->image->globals) {
      if (global.name != name)
        continue;
      if (pointer != nullptr)
        *pointer = found->globals.find(global.name)->second;
      if (bytes != nullptr)
        *bytes = global.size;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
  });
}
