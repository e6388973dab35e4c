// The rotary embedding's kernels that are compiled for the CPU.

#pragma once

#include <string_view>
#include <vector>

#include "tests/integration/rope/shape.h"
#include "tests/support/cpu_kernel/variant.h"

namespace kiln::rope_test {

using kiln_cpu::Variant;

/// Both passes.
[[nodiscard]] const std::vector<Variant>& all_variants();
/// Of rope_fwd; rope_bwd has the same ones.
[[nodiscard]] std::vector<Variant> forward_variants();

/// The kernel with the parameters of `like`, but for those given; null where that is
/// not compiled.
[[nodiscard]] const Variant* variant_like(const Variant& like, std::string_view kernel,
                                          std::string_view style);

[[nodiscard]] bool is_forward(const Variant& variant);
[[nodiscard]] Form form_of(const Variant& variant);

}  // namespace kiln::rope_test
