// The norm kernels that are compiled for the CPU.

#include "tests/integration/norm/configuration.h"
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

namespace kiln::norm_test {

using kiln_cpu::Variant;
using ops::DType;

namespace {

Configuration configuration_of(const Variant& forward) {
  const bool layer = forward.kernel() == "layernorm_fwd";
  const std::string& dtype = forward.param("dtype");
  const std::string& cols = forward.param("max_cols");
  Configuration of{
      .layer = layer,
      .dtype = dtype == "f16"    ? DType::kF16
               : dtype == "bf16" ? DType::kBf16
                                 : DType::kF32,
      .weight_dtype = DType::kF32,
      .max_cols = cols == "any" ? 0 : std::stoll(cols),
      .residual = forward.param("residual") == "true",
      .option = forward.param(layer ? "bias" : "llama") == "true",
  };
  if (forward.param("weight_dtype") == "same")
    of.weight_dtype = of.dtype;
  return of;
}

}  // namespace

const std::vector<Configuration>& all_configurations() {
  static const auto* const all = [] {
    auto* const list = new std::vector<Configuration>;
    for (const Variant& variant : kiln_cpu::kernels_of_program()) {
      if (variant.kernel().ends_with("_fwd"))
        list->push_back(configuration_of(variant));
    }
    return list;
  }();
  return *all;
}

}  // namespace kiln::norm_test
