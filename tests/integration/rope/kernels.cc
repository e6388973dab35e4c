#include "tests/integration/rope/kernels.h"

#include <algorithm>
#include <iterator>

#include "tests/support/cpu_kernel/run_plan.h"

namespace kiln_cpu {
// Generated: see CMakeLists.txt.
CpuKernels rope_fwd_kernels();
CpuKernels rope_bwd_kernels();
}  // namespace kiln_cpu

namespace kiln::rope_test {

using kiln_cpu::Variant;

const std::vector<Variant>& all_variants() {
  static const auto* const all = new std::vector<Variant>(kiln_cpu::variants_of(
      {kiln_cpu::rope_fwd_kernels(), kiln_cpu::rope_bwd_kernels()}));
  return *all;
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

ops::RopeStyle style_of(const Variant& variant) {
  return variant.param("style") == "half" ? ops::RopeStyle::kHalf
                                          : ops::RopeStyle::kInterleaved;
}

ops::DType dtype_of(const Variant& variant) {
  return variant.param("dtype") == "f16"    ? ops::DType::kF16
         : variant.param("dtype") == "bf16" ? ops::DType::kBf16
                                            : ops::DType::kF32;
}

}  // namespace kiln::rope_test
