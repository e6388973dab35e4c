// What the softmax kernels' tensors look like, and which of their elements take part.

#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>

namespace kiln::softmax_test {

using I64 = long long;  // a kernel's kiln_i64

enum class Kind : std::uint8_t { kPlain, kMasked, kCausal };

[[nodiscard]] inline Kind kind_of(std::string_view kernel) {
  return kernel.find("upper_triang") != std::string_view::npos ? Kind::kCausal
         : kernel.find("masked") != std::string_view::npos     ? Kind::kMasked
                                                               : Kind::kPlain;
}

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

inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.batch << "x" << shape.heads << "x" << shape.sq << "x"
             << shape.cols;
}

/// [batch, 1, sq, cols], or one for the whole batch; a byte that is not 0 is masked.
struct MaskView {
  const std::uint8_t* bytes = nullptr;
  I64 batch_stride = 0;  // 0: one for all
};

/// Whether column `j` takes part in row `row` of all.
[[nodiscard]] inline bool is_visible(Kind kind, const Shape& shape,
                                     const MaskView& mask, I64 row, I64 j) {
  const I64 i = row % shape.sq;
  switch (kind) {
    case Kind::kPlain:
      return true;
    case Kind::kMasked: {
      const I64 at = row / (shape.heads * shape.sq) * mask.batch_stride;
      return mask.bytes[at + i * shape.cols + j] == 0;
    }
    case Kind::kCausal:
      return j <= i + shape.cols - shape.sq;
  }
  return false;
}

}  // namespace kiln::softmax_test
