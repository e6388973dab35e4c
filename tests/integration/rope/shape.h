// Which rotary embedding there is, what its tensors look like, and how they lie in
// memory.

#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "kiln/ops/rope.h"

namespace kiln::rope_test {

using I64 = std::int64_t;
using ops::RopeStrides;

enum class TableKind : std::uint8_t { kAngles, kCosSin, kCosSinF32 };

/// What chooses a kernel.
struct Form {
  bool forward = true;
  ops::DType dtype = ops::DType::kF32;
  ops::RopeStyle style = ops::RopeStyle::kHalf;
  TableKind table = TableKind::kAngles;
};

inline std::ostream& operator<<(std::ostream& out, const Form& form) {
  return out << (form.forward ? "forward_" : "backward_") << to_string(form.dtype)
             << (form.style == ops::RopeStyle::kHalf ? "_half_" : "_interleaved_")
             << (form.table == TableKind::kAngles   ? "angles"
                 : form.table == TableKind::kCosSin ? "cos_sin"
                                                    : "cos_sin_f32");
}

struct Shape {
  I64 batch = 1;
  I64 sequence = 1;  // all tokens, where lengths are given
  I64 q_heads = 1;
  I64 k_heads = 0;
  I64 dim = 64;
  I64 rotary = 64;
  /// Of packed sequences, as many as the batch: where each begins, and where the last
  /// one ends. Empty: they are not packed.
  std::vector<std::int32_t> cu_seqlens{};
  [[nodiscard]] bool packed() const { return !cu_seqlens.empty(); }
  [[nodiscard]] I64 rows() const { return packed() ? 1 : batch; }
};

/// A query's tensor.
struct Sizes {
  I64 batch, sequence, heads, dim;
};

inline Shape sized(const Sizes& q, I64 k_heads, I64 rotary) {
  return {.batch = q.batch,
          .sequence = q.sequence,
          .q_heads = q.heads,
          .k_heads = k_heads,
          .dim = q.dim,
          .rotary = rotary};
}

inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.batch << "x" << shape.sequence << "x" << shape.q_heads << "+"
             << shape.k_heads << "x" << shape.dim << "/" << shape.rotary
             << (shape.packed() ? " packed" : "");
}

/// From the outermost dimension to the innermost.
enum class Layout : std::uint8_t { kSbhd, kBshd, kBhsd, kDbsh };

/// Every dimension but the innermost has room for `gap` elements more than are inside.
inline RopeStrides strides_of(Layout layout, const Shape& shape, I64 heads, I64 gap) {
  RopeStrides strides;
  I64 inside = 1;
  const auto put = [&](I64 RopeStrides::*which, I64 size) {
    strides.*which = inside;
    inside = inside * size + gap;
  };
  const auto put_batch = [&] { put(&RopeStrides::batch, shape.rows()); };
  const auto put_sequence = [&] { put(&RopeStrides::sequence, shape.sequence); };
  const auto put_heads = [&] { put(&RopeStrides::head, heads); };
  if (layout == Layout::kDbsh) {
    put_heads();
    put_sequence();
    put_batch();
    put(&RopeStrides::dim, shape.dim);
    return strides;
  }
  put(&RopeStrides::dim, shape.dim);
  if (layout == Layout::kBhsd) {
    put_sequence();
    put_heads();
    put_batch();
  } else {
    put_heads();
    layout == Layout::kSbhd ? put_batch() : put_sequence();
    layout == Layout::kSbhd ? put_sequence() : put_batch();
  }
  return strides;
}

/// From the first element to the last.
inline I64 span_of(const Shape& shape, I64 heads, const RopeStrides& strides) {
  if (shape.rows() * shape.sequence * heads * shape.dim == 0)
    return 0;
  return (shape.rows() - 1) * strides.batch + (shape.sequence - 1) * strides.sequence +
         (heads - 1) * strides.head + (shape.dim - 1) * strides.dim + 1;
}

}  // namespace kiln::rope_test
