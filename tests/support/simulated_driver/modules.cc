// cuModule*: an image in the current context.

#include "tests/support/simulated_driver/abi_functions.h"
#include "tests/support/simulated_driver/entry_points.h"
#include "tests/support/simulated_driver/jit_options.h"

using kiln::simulated::JitOptions;

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
    return answer(mode, simulator.settings.is_eager ? CU_MODULE_EAGER_LOADING
                                                    : CU_MODULE_LAZY_LOADING);
  });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    return get_entry(simulator.modules.find(module), &Module::functions, name,
                     function);
  });
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    return count_entries(simulator.modules.find(module), &Module::functions, count);
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned room,
                                    CUmodule module) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    return list_entries(simulator.modules.find(module), &Module::functions, functions,
                        room);
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* pointer, std::size_t* bytes, CUmodule module,
                              const char* name) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    return get_global(simulator.modules.find(module), pointer, bytes, name);
  });
}

CUresult cuModuleLoad(CUmodule* module, const char* path) {
  const auto image = kiln::simulated::read_file(path);
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    return image ? load(simulator, module, image->c_str(), {}) : image.error();
  });
}
