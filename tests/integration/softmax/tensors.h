// One problem's tensors between guards, what its kernel is given, and how far what that
// wrote is from the reference. Knows nothing of where kernels run.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "kiln/result.h"
#include "tests/integration/softmax/errors.h"
#include "tests/integration/softmax/inputs.h"
#include "tests/support/cpu_kernel/executor.h"
#include "tests/support/tensors/element_types.h"
#include "tests/support/tensors/guarded_tensor.h"

namespace kiln::softmax_test {

using kiln_cpu::Order;
using kiln_cpu::Side;
using test::kInfinity;
using test::kNaN;
using test::with_type;
template <typename T>
using Tensor = test::GuardedTensor<T>;

/// What chooses a kernel, beside its type and its class of row length.
struct Form {
  Kind kind = Kind::kPlain;
  bool is_forward = true;
};

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

/// Where a kernel's tensors are. `in` is x of a forward kernel and dy of a backward
/// one.
struct Pointers {
  void* out;
  const void* in;
  const void* y;
  const void* mask;
};

/// Calls `launch` with what the kernel takes, in order.
template <typename Launch>
Result<void> with_arguments(const Form& form, const Pointers& pointers, float scale,
                            const Shape& shape, I64 mask_stride, const Launch& launch) {
  const auto [out, in, y, mask] = pointers;
  const I64 rows = shape.rows();
  if (form.kind == Kind::kCausal) {
    return form.is_forward ? launch(out, in, scale, rows, shape.sq, shape.cols)
                           : launch(out, in, y, scale, rows, shape.sq, shape.cols);
  }
  if (!form.is_forward)
    return launch(out, in, y, scale, rows, shape.cols);
  if (form.kind == Kind::kMasked) {
    return launch(out, in, mask, scale, rows, shape.heads, shape.sq, shape.cols,
                  mask_stride);
  }
  return launch(out, in, scale, rows, shape.cols);
}

/// The y of a backward kernel is one that a forward kernel might have written.
template <typename T>
class Tensors {
 public:
  Tensors(const Form& form, const Shape& shape, const Setting& setting)
      : form_(form),
        shape_(shape),
        setting_(setting),
        mask_(make_mask(shape,
                        setting.mask_batches == 0 ? shape.batch : setting.mask_batches,
                        setting)),
        in_(random_tensor<T>("in", shape.size(), setting)),
        y_("y", shape.size(), setting.place()) {
    if (!form.is_forward) {
      fill_y(y_.data(), in_.data(), shape,
             [this](I64 row, I64 j) { return visible(row, j); });
    }
  }

  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] bool visible(I64 row, I64 j) const {
    return is_visible(form_.kind, shape_, mask(), row, j);
  }
  [[nodiscard]] MaskView mask() const {
    return {reinterpret_cast<const std::uint8_t*>(mask_.data()),
            setting_.mask_batches == 1 ? 0 : shape_.sq * shape_.cols};
  }
  T& in(I64 row, I64 j) { return in_.data()[row * shape_.cols + j]; }
  [[nodiscard]] Tensor<T>& in() { return in_; }
  [[nodiscard]] Tensor<T>& y() { return y_; }
  [[nodiscard]] Setting& setting() { return setting_; }
  [[nodiscard]] const Setting& setting() const { return setting_; }

  /// What a kernel writes to, NaN at first.
  [[nodiscard]] Tensor<T> make_out() const {
    return {"out", shape_.size(), setting_.place()};
  }

  /// `launch` is given what the kernel takes, in order, with its pointers led to where
  /// `moved` says; meanwhile nothing can be written but `out`.
  template <typename Moved, typename Launch>
  [[nodiscard]] Result<void> launch_into(Tensor<T>& out, const Moved& moved,
                                         const Launch& launch) const {
    const test::ReadOnly inputs(in_, y_, mask_);
    const Pointers here{out.data(), in_.data(), y_.data(), mask_.data()};
    return with_arguments(form_, moved(here), setting_.scale, shape_,
                          mask().batch_stride, launch);
  }

  /// The largest error of a row of `out` in ulp, if `scale` is what was asked for.
  [[nodiscard]] double row_error(const Tensor<T>& out, I64 row, float scale) const {
    SCOPED_TRACE(testing::Message() << "row " << row);
    const I64 at = row * shape_.cols;
    const T* const got = out.data() + at;
    if (!form_.is_forward)
      return backward_error(y_.data() + at, in_.data() + at, got, shape_.cols, scale);
    return forward_error(in_.data() + at, got, shape_.cols, scale,
                         [&](I64 j) { return visible(row, j); });
  }
  [[nodiscard]] double error(const Tensor<T>& out, float scale) const {
    double worst = 0;
    for (I64 row = 0; row < shape_.rows(); ++row)
      worst = std::max(worst, row_error(out, row, scale));
    return worst;
  }

  /// The same for the scale that was given, with a failure where it is too large.
  [[nodiscard]] double check(const Tensor<T>& out) const {
    const double worst = error(out, setting_.scale);
    EXPECT_LE(worst, error_bound<T>(form_.is_forward));
    return worst;
  }

 private:
  const Form form_;
  const Shape shape_;
  Setting setting_;
  const Tensor<Byte> mask_;
  Tensor<T> in_;
  Tensor<T> y_;
};

}  // namespace kiln::softmax_test
