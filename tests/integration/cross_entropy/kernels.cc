// The cross-entropy kernels that are compiled for the CPU.

#include "tests/support/cpu_kernel/run_plan.h"

namespace kiln_cpu {

CpuKernels cross_entropy_kernels();  // generated: see CMakeLists.txt

const std::vector<Variant>& kernels_of_program() {
  static const auto* const all =
      new std::vector<Variant>(variants_of({cross_entropy_kernels()}));
  return *all;
}

}  // namespace kiln_cpu
