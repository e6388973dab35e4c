// The rotary embedding's kernels that are compiled for the CPU.

#pragma once

#include <string_view>
#include <vector>

#include "kiln/ops/rope.h"
#include "tests/support/cpu_kernel/variant.h"

namespace kiln::rope_test {

/// Both passes.
[[nodiscard]] const std::vector<kiln_cpu::Variant>& all_variants();
/// Of rope_fwd; rope_bwd has the same ones.
[[nodiscard]] std::vector<kiln_cpu::Variant> forward_variants();

/// The kernel with the parameters of `like`, but for those given; null where that is
/// not compiled.
[[nodiscard]] const kiln_cpu::Variant* variant_like(const kiln_cpu::Variant& like,
                                                    std::string_view kernel,
                                                    std::string_view style);

[[nodiscard]] bool is_forward(const kiln_cpu::Variant& variant);
[[nodiscard]] ops::RopeStyle style_of(const kiln_cpu::Variant& variant);
[[nodiscard]] ops::DType dtype_of(const kiln_cpu::Variant& variant);

}  // namespace kiln::rope_test
