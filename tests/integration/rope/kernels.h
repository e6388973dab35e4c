// The rotary embedding's kernels that are compiled for the CPU.

#pragma once

#include <string_view>

#include "tests/integration/rope/shape.h"
#include "tests/support/cpu_kernel/run_plan.h"

namespace kiln::rope_test {

using kiln_cpu::kernels_of_program;
using kiln_cpu::kernels_where;
using kiln_cpu::kNameOfVariant;
using kiln_cpu::Variant;

/// The kernel with the parameters of `like`, but for those given; null where that is
/// not compiled.
[[nodiscard]] const Variant* variant_like(const Variant& like, std::string_view kernel,
                                          std::string_view style);

[[nodiscard]] Form form_of(const Variant& variant);

}  // namespace kiln::rope_test
