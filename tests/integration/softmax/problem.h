// One problem for one kernel: tensors behind guards, the launch, the error against the
// reference.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/integration/softmax/errors.h"
#include "tests/integration/softmax/inputs.h"
#include "tests/integration/softmax/kernels.h"
#include "tests/support/cpu_kernel/guarded_memory.h"
#include "tests/support/tensors/element_types.h"
#include "tests/support/tensors/guarded_tensor.h"

namespace kiln::softmax_test {

using kiln_cpu::Order;
using kiln_cpu::Side;
using kiln_cpu::Variant;
using test::kInfinity;
using test::kNaN;
using test::with_type;
template <typename T>
using Tensor = test::GuardedTensor<T>;

/// What a launch is given beside its tensors.
struct Setting {
  float scale = 0.125F;
  /// Of all tensors from a 16-byte boundary, in elements. Unset: what Side gives.
  std::optional<std::size_t> offset{};
  std::optional<std::size_t> mask_offset{};  // the same of the mask
  Side exact = Side::kEnd;
  Order order = Order::kAscending;
  std::uint32_t most_blocks = ~0U;  // of the grid: the kernel computes all rows with it
  I64 mask_batches = 0;             // 0: as many as the batch
  [[nodiscard]] test::Place place() const { return {.offset = offset, .exact = exact}; }
};

inline Tensor<Byte> make_mask(const Shape& shape, I64 batches, const Setting& setting) {
  Tensor<Byte> mask("mask", static_cast<std::size_t>(batches * shape.sq * shape.cols),
                    {.offset = setting.mask_offset, .exact = setting.exact});
  fill_mask({reinterpret_cast<std::uint8_t*>(mask.data()), mask.size()}, shape.cols);
  return mask;
}

template <typename T>
Tensor<T> random_tensor(const char* name, std::size_t size, const Setting& setting) {
  Tensor<T> tensor(name, size, setting.place());
  fill_normally(std::span(tensor.data(), size));
  return tensor;
}

/// `in` is x of a forward kernel and dy of a backward one, whose y a forward kernel
/// might have written.
template <typename T>
class Problem {
 public:
  Problem(const Variant& variant, const Shape& shape, const Setting& setting)
      : variant_(variant),
        shape_(shape),
        setting_(setting),
        mask_(make_mask(shape,
                        setting.mask_batches == 0 ? shape.batch : setting.mask_batches,
                        setting)),
        in_(random_tensor<T>("in", shape.size(), setting)),
        y_("y", shape.size(), setting.place()) {
    if (!is_forward(variant)) {
      fill_y(y_.data(), in_.data(), shape,
             [this](I64 row, I64 j) { return visible(row, j); });
    }
  }

  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] bool visible(I64 row, I64 j) const {
    return is_visible(kind_of(variant_), shape_, mask(), row, j);
  }
  T& in(I64 row, I64 j) { return in_.data()[row * shape_.cols + j]; }
  [[nodiscard]] Tensor<T>& in() { return in_; }
  [[nodiscard]] Tensor<T>& y() { return y_; }
  [[nodiscard]] Setting& setting() { return setting_; }

  /// A launch that writes `out` and can write nothing else. What it does wrong is a
  /// failure of the test.
  void run_into(Tensor<T>& out, const kiln_cpu::LaunchOptions& options) const {
    auto geometry = variant_.geometry({{"rows", shape_.rows()}, {"cols", shape_.cols}});
    ASSERT_TRUE(geometry) << geometry.error().message;
    geometry->grid[0] = std::min(geometry->grid[0], setting_.most_blocks);
    for (auto* const memory : {&in_.memory(), &y_.memory(), &mask_.memory()}) {
      memory->make_read_only();
    }
    const auto done = launch(*geometry, options, out.data());
    for (auto* const memory : {&in_.memory(), &y_.memory(), &mask_.memory()}) {
      memory->make_writable();
    }
    ASSERT_TRUE(done) << done.error().message;
  }

  [[nodiscard]] Tensor<T> run() const {
    Tensor<T> out("out", shape_.size(), setting_.place());
    run_into(out, {.order = setting_.order});
    return out;
  }

  /// The largest error of a row of `out` in ulp, if `scale` is what was asked for.
  [[nodiscard]] double row_error(const Tensor<T>& out, I64 row, float scale) const {
    SCOPED_TRACE(testing::Message() << "row " << row);
    const I64 at = row * shape_.cols;
    const T* const got = out.data() + at;
    if (!is_forward(variant_))
      return backward_error(y_.data() + at, in_.data() + at, got, shape_.cols, scale);
    return forward_error(in_.data() + at, got, shape_.cols, scale,
                         [&](I64 j) { return visible(row, j); });
  }
  [[nodiscard]] double error(const Tensor<T>& out, float scale) const {
    double worst = 0;
    for (I64 row = 0; row < shape_.rows(); ++row) {
      worst = std::max(worst, row_error(out, row, scale));
    }
    return worst;
  }

  /// The same, with a failure where it is too large.
  [[nodiscard]] double run_and_check() const {
    const double worst = error(run(), setting_.scale);
    EXPECT_LE(worst, error_bound<T>(is_forward(variant_)));
    return worst;
  }

 private:
  [[nodiscard]] MaskView mask() const {
    return {reinterpret_cast<const std::uint8_t*>(mask_.data()),
            setting_.mask_batches == 1 ? 0 : shape_.sq * shape_.cols};
  }

  [[nodiscard]] Result<void> launch(const Geometry& geometry,
                                    const kiln_cpu::LaunchOptions& options,
                                    void* out) const {
    const void* const from = in_.data();
    const void* const y = y_.data();
    const I64 rows = shape_.rows();
    const I64 cols = shape_.cols;
    const float scale = setting_.scale;
    const bool causal = kind_of(variant_) == Kind::kCausal;
    if (!is_forward(variant_)) {
      return causal
                 ? variant_.launch(geometry, options, out, from, y, scale, rows,
                                   shape_.sq, cols)
                 : variant_.launch(geometry, options, out, from, y, scale, rows, cols);
    }
    if (causal) {
      return variant_.launch(geometry, options, out, from, scale, rows, shape_.sq,
                             cols);
    }
    if (kind_of(variant_) == Kind::kMasked) {
      return variant_.launch(geometry, options, out, from, mask().bytes, scale, rows,
                             shape_.heads, shape_.sq, cols, mask().batch_stride);
    }
    return variant_.launch(geometry, options, out, from, scale, rows, cols);
  }

  const Variant& variant_;
  const Shape shape_;
  Setting setting_;
  const Tensor<Byte> mask_;
  Tensor<T> in_;
  Tensor<T> y_;
};

}  // namespace kiln::softmax_test
