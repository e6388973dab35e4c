// The softmax kernels' text compiled for the CPU runs where the simulated driver is
// asked to run them. So the tests for real devices are tested themselves: their
// arguments, copies and comparisons. Nothing is said of what NVRTC made of the text.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/gpu/stand_in.h"
#include "tests/support/cpu_kernel/executor.h"
#include "tests/support/cpu_kernel/kernels.h"
#include "tests/support/simulated_driver/simulated_driver.h"

namespace kiln_cpu {
// Generated: see tests/integration/softmax/CMakeLists.txt.
CpuKernels softmax_plain_kernels();
CpuKernels softmax_masked_kernels();
CpuKernels softmax_causal_kernels();
}  // namespace kiln_cpu

namespace kiln::gpu_test {
namespace {

using I64 = long long;

const kiln_cpu::CpuKernel* find(std::string_view variant) {
  for (const kiln_cpu::CpuKernels& kernels :
       {kiln_cpu::softmax_plain_kernels(), kiln_cpu::softmax_masked_kernels(),
        kiln_cpu::softmax_causal_kernels()}) {
    const auto found = std::find_if(
        kernels.begin(), kernels.end(),
        [&](const kiln_cpu::CpuKernel& each) { return each.variant == variant; });
    if (found != kernels.end())
      return &*found;
  }
  return nullptr;
}

template <typename... Types, std::size_t... kAt>
void call(void (*entry)(), void** parameters, std::index_sequence<kAt...> /*at*/) {
  reinterpret_cast<void (*)(Types...)>(entry)(*static_cast<Types*>(parameters[kAt])...);
}

template <typename... Types>
void call(const kiln_cpu::CpuKernel& kernel, void** parameters) {
  call<Types...>(kernel.entry, parameters, std::index_sequence_for<Types...>());
}

void call_entry(const kiln_cpu::CpuKernel& kernel, void** parameters) {
  const std::string_view name = kernel.variant.substr(0, kernel.variant.find(':'));
  const bool is_forward = name.ends_with("_fwd");
  if (name.find("upper_triang") != std::string_view::npos) {
    if (is_forward)
      call<void*, const void*, float, I64, I64, I64>(kernel, parameters);
    else
      call<void*, const void*, const void*, float, I64, I64, I64>(kernel, parameters);
  } else if (!is_forward) {
    call<void*, const void*, const void*, float, I64, I64>(kernel, parameters);
  } else if (name.find("masked") != std::string_view::npos) {
    call<void*, const void*, const void*, float, I64, I64, I64, I64, I64>(kernel,
                                                                          parameters);
  } else {
    call<void*, const void*, float, I64, I64>(kernel, parameters);
  }
}

void run(const kiln_simulated_launch* launch, void** parameters, void* user) {
  const auto& kernel = *static_cast<const kiln_cpu::CpuKernel*>(user);
  Geometry geometry{.shared_bytes = launch->dynamic_shared_bytes};
  std::copy_n(launch->grid, 3, geometry.grid.begin());
  std::copy_n(launch->block, 3, geometry.block.begin());
  const auto done =
      kiln_cpu::launch(geometry, {}, [&] { call_entry(kernel, parameters); });
  EXPECT_TRUE(done) << done.error().message;
}

}  // namespace

bool stands_in_for(const Kernel& kernel) {
  const kiln_cpu::CpuKernel* const on_cpu = find(kernel.name());
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no test sets it
  void* const driver = ::dlopen(std::getenv("KILN_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  if (on_cpu == nullptr || driver == nullptr)
    return false;
  const auto enlist = reinterpret_cast<decltype(&kiln_simulated_register_kernel)>(
      ::dlsym(driver, "kiln_simulated_register_kernel"));
  if (enlist == nullptr)
    return false;
  enlist(kernel.entry_point().c_str(), &run, const_cast<kiln_cpu::CpuKernel*>(on_cpu));
  return true;
}

}  // namespace kiln::gpu_test
