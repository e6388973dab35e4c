// The softmax kernels that are compiled for the CPU.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/integration/softmax/shape.h"
#include "tests/support/cpu_kernel/variant.h"

namespace kiln::softmax_test {

[[nodiscard]] Kind kind_of(const kiln_cpu::Variant& variant);
[[nodiscard]] bool is_forward(const kiln_cpu::Variant& variant);
/// The longest row it takes.
[[nodiscard]] I64 max_cols(const kiln_cpu::Variant& variant);

/// Each type and each class of row length, of every kernel.
[[nodiscard]] const std::vector<kiln_cpu::Variant>& all_variants();
[[nodiscard]] std::vector<kiln_cpu::Variant> forward_variants();
[[nodiscard]] std::vector<kiln_cpu::Variant> backward_variants();
[[nodiscard]] std::vector<kiln_cpu::Variant> variants(Kind kind);
[[nodiscard]] std::vector<kiln_cpu::Variant> forward_variants(Kind kind);

/// The kernel `kernel` with the parameters of `like`.
[[nodiscard]] const kiln_cpu::Variant& variant_like(const kiln_cpu::Variant& like,
                                                    std::string_view kernel);

}  // namespace kiln::softmax_test
