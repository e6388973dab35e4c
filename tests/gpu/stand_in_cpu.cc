// The softmax kernels' text compiled for the CPU runs where the simulated driver is
// asked to run them. So the tests for real devices are tested themselves: their
// arguments, copies and comparisons. Nothing is said of what NVRTC made of the text.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

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

void run(const kiln_simulated_launch* launch, void** parameters, void* user) {
  const auto& kernel = *static_cast<const kiln_cpu::CpuKernel*>(user);
  Geometry geometry{.shared_bytes = launch->dynamic_shared_bytes};
  std::copy_n(launch->grid, 3, geometry.grid.begin());
  std::copy_n(launch->block, 3, geometry.block.begin());
  const auto done = kiln_cpu::launch(geometry, {}, [&] { kernel.call(parameters); });
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
