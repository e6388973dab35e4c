// One problem's tensors between guards, what its kernel is given, and how far what that
// wrote is from the reference. Knows nothing of where kernels run.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>

#include "kiln/result.h"
#include "tests/integration/softmax/reference.h"
#include "tests/integration/softmax/shape.h"
#include "tests/support/kernels/order.h"
#include "tests/support/tensors/element_types.h"
#include "tests/support/tensors/guarded_tensor.h"
#include "tests/support/tensors/numbers.h"

namespace kiln::softmax_test {

using kiln_cpu::Order;
using kiln_cpu::Side;
using test::fill_normally;
using test::in_ulp;
using test::kInfinity;
using test::kNaN;
using test::ulp;
using test::values;
using test::with_type;
template <typename T>
using Tensor = test::GuardedTensor<T>;

/// Of a mask.
using Byte = test::Whole<std::uint8_t, 1>;

/// A quarter of the columns masked; every fifth row of a mask wholly.
inline void fill_mask(std::span<std::uint8_t> mask, I64 cols) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same every time
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const bool whole = static_cast<I64>(i) / cols % 5 == 4;
    mask[i] = whole || random() % 4 == 0 ? 1 : 0;
  }
}

/// y as a forward kernel might have written it, out of `x`; both have the size of
/// `shape`. `visible(row, j)` says what is not masked.
template <typename T, typename Visible>
void fill_y(T* y, const T* x, const Shape& shape, Visible visible) {
  for (I64 row = 0; row < shape.rows(); ++row) {
    const I64 at = row * shape.cols;
    const auto row_of_y = softmax(values(x + at, shape.cols), 0.5F,
                                  [&](I64 j) { return visible(row, j); });
    for (I64 j = 0; j < shape.cols; ++j)
      y[at + j] = T::from(static_cast<float>(row_of_y[static_cast<std::size_t>(j)]));
  }
}

/// What chooses a kernel, beside its type and its class of row length.
struct Form {
  Kind kind = Kind::kPlain;
  bool is_forward = true;
  bool is_uniform = false;  // a row that is masked wholly is 1 / cols, and not 0
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

/// What errors, in ulp, a result may have: half an ulp of the store, and for a forward
/// kernel exponent and approximation of a 16-bit type, or exponential, sum and quotient
/// of a float (3.14 was seen in rows of 4095, where a lane adds 32 parts one after the
/// other). A backward kernel's sum is excused by its terms.
template <typename T>
constexpr double error_bound(bool is_forward) {
  return 0.5 + (!is_forward ? 0x1p-6 : sizeof(T) == 2 ? 0.1 : 3.5);
}

/// The largest error in ulp of one row `got` of softmax(scale * x), with a failure
/// where a masked element is not 0, or in a row of these alone not about `masked_row`.
/// `visible(j)` says what is not masked.
template <typename T, typename Visible>
double forward_error(const T* x, const T* got, I64 cols, float scale, Visible visible,
                     double masked_row) {
  const auto expected = softmax(values(x, cols), scale, visible, masked_row);
  double worst = 0;
  for (I64 j = 0; j < cols; ++j) {
    if (!visible(j) && expected[static_cast<std::size_t>(j)] == 0) {
      EXPECT_EQ(got[j].value(), 0) << "masked: column " << j;
    }
    // Exponentials below 2^-125 may be 0.
    const double want = expected[static_cast<std::size_t>(j)];
    worst = std::max(worst, in_ulp<T>(got[j].value(), want, 0x1p-125));
  }
  return worst;
}

/// The same of the gradient, with a failure where y is 0 and it is not.
template <typename T>
double backward_error(const T* y, const T* dy, const T* got, I64 cols, float scale) {
  const auto expected = gradient(values(y, cols), values(dy, cols), scale);
  double worst = 0;
  for (I64 j = 0; j < cols; ++j) {
    if (y[j].value() == 0) {
      EXPECT_EQ(got[j].value(), 0) << "y is 0: column " << j;
    }
    const auto at = static_cast<std::size_t>(j);
    const double rounding = 16 * 0x1p-24 * expected.magnitude[at] + 0x1p-149;
    worst = std::max(worst, in_ulp<T>(got[j].value(), expected.dx[at], rounding));
  }
  return worst;
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
    return forward_error(
        in_.data() + at, got, shape_.cols, scale,
        [&](I64 j) { return visible(row, j); }, masked_row());
  }
  /// Of each element of a row that is masked wholly.
  [[nodiscard]] double masked_row() const {
    return form_.is_uniform ? 1 / static_cast<double>(shape_.cols) : 0;
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
