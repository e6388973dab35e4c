// The norm kernels that are compiled for the CPU.

#include "tests/support/cpu_kernel/run_plan.h"

namespace kiln_cpu {

// Generated: see CMakeLists.txt.
CpuKernels layernorm_fwd_kernels();
CpuKernels layernorm_bwd_kernels();
CpuKernels rmsnorm_fwd_kernels();
CpuKernels rmsnorm_bwd_kernels();

const std::vector<Variant>& kernels_of_program() {
  static const auto* const all = new std::vector<Variant>(
      variants_of({layernorm_fwd_kernels(), layernorm_bwd_kernels(),
                   rmsnorm_fwd_kernels(), rmsnorm_bwd_kernels()}));
  return *all;
}

}  // namespace kiln_cpu
