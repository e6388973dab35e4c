// The softmax kernels that are compiled for the CPU.

#pragma once

#include <string_view>
#include <vector>

#include "tests/integration/softmax/shape.h"
#include "tests/support/cpu_kernel/run_plan.h"

namespace kiln::softmax_test {

using kiln_cpu::kernels_of_program;
using kiln_cpu::kernels_where;
using kiln_cpu::kNameOfVariant;
using kiln_cpu::Variant;

[[nodiscard]] Kind kind_of(const Variant& variant);
/// The longest row it takes.
[[nodiscard]] I64 max_cols(const Variant& variant);

[[nodiscard]] std::vector<Variant> forward_variants();
[[nodiscard]] std::vector<Variant> backward_variants();
[[nodiscard]] std::vector<Variant> variants(Kind kind);
[[nodiscard]] std::vector<Variant> forward_variants(Kind kind);

/// The kernel `kernel` with the parameters of `like`.
[[nodiscard]] const Variant& variant_like(const Variant& like, std::string_view kernel);

}  // namespace kiln::softmax_test
