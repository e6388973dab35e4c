// cuLibrary* and cuKernel*: an image in every context that needs it.

#include "tests/support/simulated_driver/abi_functions.h"
#include "tests/support/simulated_driver/entry_points.h"
#include "tests/support/simulated_driver/fits.h"
#include "tests/support/simulated_driver/function_attributes.h"
#include "tests/support/simulated_driver/jit_options.h"

using kiln::simulated::JitOptions;
using kiln::simulated::Kernel;

namespace {

// Into every context that there is; on the first refusal the library is gone again.
CUresult push_everywhere(Simulator& simulator, CUlibrary library,
                         const JitOptions& options) {
  std::vector<CUcontext> present;
  simulator.contexts.for_each(
      [&](CUcontext handle, const kiln::simulated::Context& context) {
        if (context.is_active)
          present.push_back(handle);
      });
  for (const CUcontext context : present) {
    const auto module = simulator.module_in(library, context);
    if (module)
      continue;
    options.report(module.error().why);
    const CUresult result = module.error().result;
    simulator.unload_library(library);
    return result;
  }
  return CUDA_SUCCESS;
}

CUresult load(Simulator& simulator, CUlibrary* library, const void* code,
              const JitOptions& options) {
  if (library == nullptr || code == nullptr || !options.is_valid())
    return CUDA_ERROR_INVALID_VALUE;
  auto read = kiln::simulated::read_image(code);
  if (!read) {
    options.report(read.error().why);
    return read.error().result;
  }
  const auto image = std::make_shared<const Image>(*std::move(read));
  const CUlibrary made =
      simulator.libraries.add({.image = image, .kernels = {}, .modules = {}});
  Library& inside = *simulator.libraries.find(made);
  for (std::size_t i = 0; i < image->entry_points.size(); ++i)
    inside.kernels.push_back(
        simulator.kernels.add({.library = made, .index = i, .settings = {}}));
  if (simulator.settings.is_eager) {
    const CUresult pushed = push_everywhere(simulator, made, options);
    if (pushed != CUDA_SUCCESS)
      return pushed;
  }
  *library = made;
  return CUDA_SUCCESS;
}

// The kernel's library in the current context.
tl::expected<CUmodule, CUresult> module_here(Simulator& simulator, CUlibrary library) {
  const CUcontext context = simulator.current_handle();
  const bool is_new = !simulator.libraries.find(library)->modules.contains(context);
  if (is_new) {
    const CUresult refused = simulator.check_not_capturing();
    if (refused != CUDA_SUCCESS)
      return tl::unexpected(refused);
  }
  const auto module = simulator.module_in(library, context);
  if (!module)
    return tl::unexpected(module.error().result);
  return *module;
}

/// `use(simulator, kernel)` for a kernel that there is.
template <typename Use>
CUresult with_kernel(const char* symbol, CUkernel kernel, const Use& use) {
  return with(
      symbol, Needs::kDriver, CUDA_ERROR_INVALID_HANDLE,
      [&](Simulator& simulator) { return simulator.kernels.find(kernel); }, use);
}

const kiln::simulated::EntryPoint& entry_of(const Simulator& simulator,
                                            const Kernel& kernel) {
  return simulator.libraries.find(kernel.library)->image->entry_points[kernel.index];
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): the driver has eight parameters here
CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* options,
                           void** values, unsigned count, CUlibraryOption*, void**,
                           unsigned) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    return load(simulator, library, code,
                {.names = options, .values = values, .count = count});
  });
}

// NOLINTNEXTLINE(readability-function-size): the driver has eight parameters here
CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path,
                               CUjit_option* options, void** values, unsigned count,
                               CUlibraryOption*, void**, unsigned) {
  const auto image = kiln::simulated::read_file(path);
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    return image ? load(simulator, library, image->c_str(),
                        {.names = options, .values = values, .count = count})
                 : image.error();
  });
}

CUresult cuLibraryUnload(CUlibrary library) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    if (simulator.libraries.find(library) == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    simulator.unload_library(library);
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    return get_entry(simulator.libraries.find(library), &Library::kernels, name,
                     kernel);
  });
}

CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary library) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    return count_entries(simulator.libraries.find(library), &Library::kernels, count);
  });
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned room,
                                   CUlibrary library) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    return list_entries(simulator.libraries.find(library), &Library::kernels, kernels,
                        room);
  });
}

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (module == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (simulator.libraries.find(library) == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    const auto found = module_here(simulator, library);
    return found ? answer(module, *found) : found.error();
  });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* pointer, std::size_t* bytes, CUlibrary library,
                            const char* name) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (simulator.libraries.find(library) == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    const auto module = module_here(simulator, library);
    return module ? get_global(simulator.modules.find(*module), pointer, bytes, name)
                  : module.error();
  });
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (function == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const Kernel* const found = simulator.kernels.find(kernel);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    const auto module = module_here(simulator, found->library);
    if (!module)
      return module.error();
    return answer(function, simulator.modules.find(*module)->functions[found->index]);
  });
}

CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
  return with_kernel(__func__, kernel, [&](Simulator&, const Kernel& found) {
    return answer(library, found.library);
  });
}

CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  return with_kernel(__func__, kernel, [&](Simulator& simulator, const Kernel& found) {
    return answer(name, simulator.intern(entry_of(simulator, found).name));
  });
}

CUresult cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset,
                              std::size_t* size) {
  return with_kernel(__func__, kernel, [&](Simulator& simulator, const Kernel& found) {
    return get_parameter(entry_of(simulator, found), index, offset, size);
  });
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute which, CUkernel kernel,
                              CUdevice ordinal) {
  return with_kernel(__func__, kernel, [&](Simulator& simulator, Kernel& found) {
    const Device* const device = simulator.device(ordinal);
    if (device == nullptr)
      return CUDA_ERROR_INVALID_DEVICE;
    const Image& image = *simulator.libraries.find(found.library)->image;
    const auto& settings = simulator.settings;
    if (const auto refused =
            refusal(image, device->model.capability, settings.driver_version,
                    settings.default_toolkit()))
      return refused->result;
    const auto got = kiln::simulated::function_attribute(
        image, image.entry_points[found.index], found.settings[ordinal], device->model,
        which);
    return got ? answer(value, *got) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel,
                              CUdevice ordinal) {
  return with_kernel(__func__, kernel, [&](Simulator& simulator, Kernel& found) {
    const Device* const device = simulator.device(ordinal);
    if (device == nullptr)
      return CUDA_ERROR_INVALID_DEVICE;
    FunctionSettings& settings = found.settings[ordinal];
    const CUresult result = kiln::simulated::set_function_attribute(
        entry_of(simulator, found), device->model, which, value, settings);
    for (const auto& [context, module] :
         simulator.libraries.find(found.library)->modules) {
      if (simulator.contexts.find(context)->device == ordinal)
        simulator.functions
            .find(simulator.modules.find(module)->functions[found.index])
            ->settings = settings;
    }
    return result;
  });
}
