// The kernels' text compiled for the CPU runs where the simulated driver is asked to
// run them. So the tests for real devices are tested themselves: their arguments,
// copies and comparisons. Nothing is said of what NVRTC made of the text.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "ops/plans.h"
#include "tests/gpu/stand_in.h"
#include "tests/support/cpu_kernel/executor.h"
#include "tests/support/cpu_kernel/run_plan.h"
#include "tests/support/simulated_driver/simulated_driver.h"

namespace kiln::gpu_test {
namespace {

using kiln_cpu::Variant;

void run(const kiln_simulated_launch* launch, void** parameters, void* user) {
  const auto& variant = *static_cast<const Variant*>(user);
  Geometry geometry{.shared_bytes = launch->dynamic_shared_bytes};
  std::copy_n(launch->grid, 3, geometry.grid.begin());
  std::copy_n(launch->block, 3, geometry.block.begin());
  const auto done =
      kiln_cpu::launch(geometry, {}, [&] { variant.compiled().call(parameters); });
  EXPECT_TRUE(done) << done.error().message;
}

/// The CPU computes `variant` from now on wherever its entry point is launched. False
/// where there is none.
bool enlist(const Variant* variant) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no test sets it
  void* const driver = ::dlopen(std::getenv("KILN_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  if (variant == nullptr || driver == nullptr)
    return false;
  const auto enlist_kernel =
      reinterpret_cast<decltype(&kiln_simulated_register_kernel)>(
          ::dlsym(driver, "kiln_simulated_register_kernel"));
  if (enlist_kernel == nullptr)
    return false;
  enlist_kernel(std::string(variant->entry()).c_str(), &run,
                const_cast<Variant*>(variant));
  return true;
}

}  // namespace

bool stands_in_for(const Kernel& kernel) {
  const auto& all = kiln_cpu::kernels_of_program();
  const auto found = std::ranges::find_if(all, [&](const Variant& each) {
    return each.name() == kernel.name() && each.entry() == kernel.entry_point();
  });
  return enlist(found == all.end() ? nullptr : &*found);
}

bool stands_in_for(const test::Operation& operation, const Device& device) {
  const auto plan =
      std::visit([&](const auto& args) { return ops::plan(args, device); }, operation);
  // What is refused launches nothing.
  return !plan || stands_in_for(*plan);
}

bool stands_in_for(const ops::Launches& plan) {
  return std::ranges::all_of(plan, [](const ops::Launch& launch) {
    return enlist(kiln_cpu::find_variant(launch, kiln_cpu::kernels_of_program()));
  });
}

bool stands_in_for_operations() {
  return true;
}

}  // namespace kiln::gpu_test
