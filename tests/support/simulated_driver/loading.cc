// Images into contexts and out again.

#include <algorithm>

#include "tests/support/simulated_driver/fits.h"
#include "tests/support/simulated_driver/simulator.h"

namespace kiln::simulated {

tl::expected<CUmodule, Refusal> Simulator::load(
    CUcontext context, const std::shared_ptr<const Image>& image, CUlibrary library) {
  Device& device = device_of(context);
  if (auto refused = refusal(*image, device.model.capability, settings.driver_version,
                             settings.default_toolkit()))
    return tl::unexpected(*std::move(refused));
  Module made{.context = context,
              .library = library,
              .image = image,
              .functions = {},
              .globals = {}};
  for (const Global& global : image->globals) {
    const CUdeviceptr memory =
        allocate(context, std::max<std::size_t>(global.size, 1), MemoryKind::kDevice);
    if (memory == 0) {
      for (const auto& [name, pointer] : made.globals) free(pointer);
      return tl::unexpected(Refusal{CUDA_ERROR_OUT_OF_MEMORY, "no room for variables"});
    }
    // Device memory is memory. NOLINTNEXTLINE(performance-no-int-to-ptr)
    auto* const bytes = reinterpret_cast<std::byte*>(memory);
    std::copy(global.initial.begin(), global.initial.end(), bytes);
    std::fill(bytes + global.initial.size(), bytes + global.size, std::byte{0});
    made.globals[global.name] = memory;
  }
  const CUmodule handle = modules.add(std::move(made));
  for (const EntryPoint& entry : image->entry_points)
    modules.find(handle)->functions.push_back(
        functions.add({.module = handle,
                       .context = context,
                       .image = image,
                       .entry = &entry,
                       .settings = {},
                       .is_loaded = settings.is_eager}));
  thread().last_image = intern(image->sha256);
  ++loads;
  ++device.loads;
  return handle;
}

void Simulator::unload(CUmodule module) {
  const Module* const found = modules.find(module);
  for (const CUfunction function : found->functions) functions.erase(function);
  for (const auto& [name, pointer] : found->globals) free(pointer);
  if (Library* const library = libraries.find(found->library))
    library->modules.erase(found->context);
  modules.erase(module);
}

tl::expected<CUmodule, Refusal> Simulator::module_in(CUlibrary library,
                                                     CUcontext context) {
  Library& found = *libraries.find(library);
  if (const auto present = found.modules.find(context); present != found.modules.end())
    return present->second;
  auto made = load(context, found.image, library);
  if (!made)
    return made;
  found.modules[context] = *made;
  const int device = contexts.find(context)->device;
  const Module& module = *modules.find(*made);
  for (std::size_t i = 0; i < module.functions.size(); ++i) {
    const auto& asked = kernels.find(found.kernels[i])->settings;
    if (const auto each = asked.find(device); each != asked.end())
      functions.find(module.functions[i])->settings = each->second;
  }
  return made;
}

void Simulator::unload_library(CUlibrary library) {
  std::vector<CUmodule> inside;
  for (const auto& [context, module] : libraries.find(library)->modules)
    inside.push_back(module);
  for (const CUmodule module : inside) unload(module);
  for (const CUkernel kernel : libraries.find(library)->kernels) kernels.erase(kernel);
  libraries.erase(library);
}

tl::expected<CUfunction, CUresult> Simulator::function_of(CUfunction handle,
                                                          CUcontext context) {
  if (functions.find(handle) != nullptr)
    return handle;
  const Kernel* const kernel = kernels.find(reinterpret_cast<CUkernel>(handle));
  if (kernel == nullptr)
    return tl::unexpected(CUDA_ERROR_INVALID_HANDLE);
  const auto module = module_in(kernel->library, context);
  if (!module)
    return tl::unexpected(module.error().result);
  return modules.find(*module)->functions[kernel->index];
}

}  // namespace kiln::simulated
