// The norm kernels that are compiled for the CPU.

#include "tests/integration/norm/configuration.h"
#include "tests/support/cpu_kernel/run_plan.h"
#include "tests/support/tensors/element_types.h"

namespace kiln::norm_test {

using kiln_cpu::Variant;
using ops::DType;

namespace {

Configuration configuration_of(const Variant& forward) {
  const bool layer = forward.kernel() == "layernorm_fwd";
  const std::string& cols = forward.param("max_cols");
  Configuration of{
      .layer = layer,
      .dtype = test::dtype_of(forward.param("dtype")),
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
      if (variant.is_forward())
        list->push_back(configuration_of(variant));
    }
    return list;
  }();
  return *all;
}

}  // namespace kiln::norm_test
