// The rotary embedding's kernels that run on the CPU.

#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "tests/integration/rope/shape.h"
#include "tests/support/kernels/run_plan.h"
#include "tests/support/tensors/element_types.h"

namespace kiln::rope_test {

using kiln_cpu::kernels_of_program;
using kiln_cpu::kernels_where;
using kiln_cpu::kNameOfVariant;
using kiln_cpu::Variant;

/// The kernel with the parameters of `like`, but for those given; null where that is
/// not compiled.
[[nodiscard]] inline const Variant* variant_like(const Variant& like,
                                                 std::string_view kernel,
                                                 std::string_view style) {
  const auto& all = kernels_of_program();
  const auto found = std::ranges::find_if(all, [&](const Variant& each) {
    return each.kernel() == kernel && each.param("style") == style &&
           each.param("dtype") == like.param("dtype") &&
           each.param("table") == like.param("table");
  });
  return found == all.end() ? nullptr : &*found;
}

[[nodiscard]] inline Form form_of(const Variant& variant) {
  const std::string& table = variant.param("table");
  return {.forward = variant.is_forward(),
          .dtype = test::dtype_of(variant.param("dtype")),
          .style = variant.param("style") == "half" ? ops::RopeStyle::kHalf
                                                    : ops::RopeStyle::kInterleaved,
          .table = table == "angles"    ? TableKind::kAngles
                   : table == "cos_sin" ? TableKind::kCosSin
                                        : TableKind::kCosSinF32};
}

}  // namespace kiln::rope_test
