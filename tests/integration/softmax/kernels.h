// The softmax kernels that are compiled for the CPU, and the shapes they are given.

#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/cpu_kernel/variant.h"

namespace kiln::softmax_test {

using I64 = long long;  // a kernel's kiln_i64

enum class Kind : std::uint8_t { kPlain, kMasked, kCausal };

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

/// All tensors are [batch, heads, sq, cols].
struct Shape {
  I64 batch = 1;
  I64 heads = 1;
  I64 sq = 1;
  I64 cols = 1;
  [[nodiscard]] I64 rows() const { return batch * heads * sq; }
  [[nodiscard]] std::size_t size() const {
    return static_cast<std::size_t>(rows() * cols);
  }
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// [batch, 1, sq, cols], or one for the whole batch; a byte that is not 0 is masked.
struct MaskView {
  const std::uint8_t* bytes = nullptr;
  I64 batch_stride = 0;  // 0: one for all
};

/// Whether column `j` takes part in row `row` of all.
[[nodiscard]] bool is_visible(Kind kind, const Shape& shape, const MaskView& mask,
                              I64 row, I64 j);

}  // namespace kiln::softmax_test
