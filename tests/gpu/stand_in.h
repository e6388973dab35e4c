// Whether results can be compared where the driver is simulated. Two programs answer
// differently: gpu_test (stand_in_none.cc) and gpu_kernels_on_cpu_test
// (stand_in_cpu.cc).

#pragma once

#include "kiln/device.h"
#include "kiln/kernel.h"
#include "ops/plan.h"
#include "tests/support/operations/run_operation.h"

namespace kiln::gpu_test {

/// Call it before each launch of a template's kernel on the simulated driver. False
/// where nothing computes what `kernel` does. Thread safety: one thread.
[[nodiscard]] bool stands_in_for(const Kernel& kernel);

/// The same before an operation on `device`: for every kernel that it launches.
[[nodiscard]] bool stands_in_for(const test::Operation& operation,
                                 const Device& device);
/// The same before the launches of `plan`.
[[nodiscard]] bool stands_in_for(const ops::Launches& plan);
/// Whether there are operations for which it is true.
[[nodiscard]] bool stands_in_for_operations();

}  // namespace kiln::gpu_test
