#include "tests/integration/activation/kernels.h"

#include <algorithm>

#include "tests/support/cpu_kernel/run_plan.h"

namespace kiln_cpu {
// Generated: see CMakeLists.txt.
CpuKernels activation_unary_kernels();
CpuKernels activation_swiglu_kernels();
CpuKernels activation_gated_kernels();

const std::vector<Variant>& kernels_of_program() {
  static const auto* const all = new std::vector<Variant>(
      variants_of({activation_unary_kernels(), activation_swiglu_kernels(),
                   activation_gated_kernels()}));
  return *all;
}
}  // namespace kiln_cpu

namespace kiln::activation_test {

const std::vector<Unit>& all_units() {
  static const auto* const all = [] {
    auto* const units = new std::vector<Unit>;
    for (const kiln_cpu::Variant& kernel : kiln_cpu::kernels_of_program()) {
      const std::string& name = kernel.kernel();
      const auto& params = kernel.params();
      if (name.ends_with("_fwd"))
        units->push_back(
            unit_of(name.substr(0, name.size() - 4), params.at("dtype"),
                    params.at("bias") == "true",
                    params.contains("weighted") && params.at("weighted") == "true"));
    }
    return units;
  }();
  return *all;
}

const Unit& unit(std::string_view name) {
  return *std::ranges::find_if(all_units(),
                               [&](const Unit& each) { return name_of(each) == name; });
}

}  // namespace kiln::activation_test
