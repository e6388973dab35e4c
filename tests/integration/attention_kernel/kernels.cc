// The kernels of this program: see CMakeLists.txt.

#include "tests/support/cpu_kernel/run_plan.h"

namespace kiln_cpu {
CpuKernels attention_fwd_kernels();
CpuKernels attention_bwd_kernels();
CpuKernels attention_plain_kernels();

const std::vector<Variant>& kernels_of_program() {
  static const auto* const all = new std::vector<Variant>(variants_of(
      {attention_fwd_kernels(), attention_bwd_kernels(), attention_plain_kernels()}));
  return *all;
}
}  // namespace kiln_cpu
