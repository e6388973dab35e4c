#include "tests/integration/rope/kernels.h"

#include <algorithm>
#include <iterator>

#include "tests/support/cpu_kernel/run_plan.h"

namespace kiln_cpu {
// Generated: see CMakeLists.txt.
CpuKernels rope_fwd_kernels();
CpuKernels rope_bwd_kernels();

const std::vector<Variant>& kernels_of_program() {
  static const auto* const all =
      new std::vector<Variant>(variants_of({rope_fwd_kernels(), rope_bwd_kernels()}));
  return *all;
}
}  // namespace kiln_cpu

namespace kiln::rope_test {

const std::vector<Variant>& all_variants() {
  return kiln_cpu::kernels_of_program();
}

std::vector<Variant> forward_variants() {
  std::vector<Variant> some;
  std::ranges::copy_if(all_variants(), std::back_inserter(some), is_forward);
  return some;
}

const Variant* variant_like(const Variant& like, std::string_view kernel,
                            std::string_view style) {
  const auto found = std::ranges::find_if(all_variants(), [&](const Variant& each) {
    return each.kernel() == kernel && each.param("style") == style &&
           each.param("dtype") == like.param("dtype") &&
           each.param("table") == like.param("table");
  });
  return found == all_variants().end() ? nullptr : &*found;
}

bool is_forward(const Variant& variant) {
  return variant.kernel() == "rope_fwd";
}

Form form_of(const Variant& variant) {
  const std::string& dtype = variant.param("dtype");
  const std::string& table = variant.param("table");
  return {.forward = is_forward(variant),
          .dtype = dtype == "f16"    ? ops::DType::kF16
                   : dtype == "bf16" ? ops::DType::kBf16
                                     : ops::DType::kF32,
          .style = variant.param("style") == "half" ? ops::RopeStyle::kHalf
                                                    : ops::RopeStyle::kInterleaved,
          .table = table == "angles"    ? TableKind::kAngles
                   : table == "cos_sin" ? TableKind::kCosSin
                                        : TableKind::kCosSinF32};
}

}  // namespace kiln::rope_test
