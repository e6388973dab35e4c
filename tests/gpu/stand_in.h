// Whether a kernel's results can be compared. Two programs answer differently: gpu_test
// (stand_in_none.cc) and gpu_softmax_on_cpu_test (stand_in_cpu.cc).

#pragma once

#include "kiln/kernel.h"

namespace kiln::gpu_test {

/// Call it before each launch of a template's kernel on the simulated driver. False
/// where nothing computes what `kernel` does. Thread safety: one thread.
[[nodiscard]] bool stands_in_for(const Kernel& kernel);

}  // namespace kiln::gpu_test
