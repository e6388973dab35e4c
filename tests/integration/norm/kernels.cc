// The norm kernels that run on the CPU.

#include "tests/integration/norm/configuration.h"
#include "tests/support/kernels/run_plan.h"
#include "tests/support/tensors/element_types.h"

namespace kiln::norm_test {

using kiln_cpu::Variant;
using ops::DType;

namespace {

Configuration configuration_of(const Variant& variant) {
  const bool layer = variant.kernel().starts_with("layernorm");
  const std::string& cols = variant.param("max_cols");
  const auto is = [&](const char* name) { return variant.param(name) == "true"; };
  Configuration of{
      .layer = layer,
      .dtype = test::dtype_of(variant.param("dtype")),
      .weight_dtype = DType::kF32,
      .max_cols = cols == "any" ? 0 : std::stoll(cols),
      .residual = is("residual"),
      .option = layer ? is("bias") : variant.is_forward() && is("llama"),
      .weight = is("weight"),
      .from_output = !variant.is_forward() && is("from_output"),
  };
  if (variant.param("weight_dtype") == "same")
    of.weight_dtype = of.dtype;
  return of;
}

}  // namespace

const std::vector<Configuration>& all_configurations() {
  static const auto* const all = [] {
    auto* const list = new std::vector<Configuration>;
    for (const Variant& variant : kiln_cpu::kernels_of_program()) {
      const Configuration of = configuration_of(variant);
      if (variant.is_forward() ||
          (of.from_output && variant.entry() == variant.kernel()))
        list->push_back(of);
    }
    return list;
  }();
  return *all;
}

}  // namespace kiln::norm_test
