// The rotary embedding's kernels that run on the CPU.

#pragma once

#include <string>

#include "tests/integration/rope/shape.h"
#include "tests/support/kernels/run_plan.h"
#include "tests/support/tensors/element_types.h"

namespace kiln::rope_test {

using kiln_cpu::kernels_of_program;
using kiln_cpu::kernels_where;
using kiln_cpu::kNameOfVariant;
using kiln_cpu::Variant;

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
