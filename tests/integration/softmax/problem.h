// One problem for one kernel: tensors behind guards, the launch, the error against the
// reference.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/softmax/element_types.h"
#include "tests/integration/softmax/kernels.h"
#include "tests/integration/softmax/reference.h"
#include "tests/support/cpu_kernel/guarded_memory.h"

namespace kiln::softmax_test {

using kiln_cpu::Order;
using kiln_cpu::Side;
using kiln_cpu::Variant;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

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
};

/// Elements of T behind guards, NaN at first.
template <typename T>
class Tensor {
 public:
  Tensor(const char* name, std::size_t size, const Setting& setting)
      : memory_(std::make_unique<kiln_cpu::GuardedMemory>(name, size * sizeof(T),
                                                          placement(setting))),
        size_(size) {
    std::fill(data(), data() + size, T::from(kNaN));
  }
  [[nodiscard]] T* data() { return reinterpret_cast<T*>(memory_->data()); }
  [[nodiscard]] const T* data() const {
    return reinterpret_cast<const T*>(memory_->data());
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] kiln_cpu::GuardedMemory& memory() const { return *memory_; }
  T& operator[](std::size_t at) { return data()[at]; }
  const T& operator[](std::size_t at) const { return data()[at]; }

  friend bool same_bits(const Tensor& a, const Tensor& b) {
    return a.size() == b.size() &&
           std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  }

 private:
  static kiln_cpu::Placement placement(const Setting& setting) {
    kiln_cpu::Placement placement{.exact = setting.exact};
    if (setting.offset) {
      placement.past_boundary = *setting.offset * sizeof(T);
    }
    return placement;
  }
  std::unique_ptr<kiln_cpu::GuardedMemory> memory_;
  std::size_t size_;
};

/// The elements are a byte each here: a mask.
struct Byte {
  std::uint8_t bits;
  static Byte from(float /*poison*/) { return {1}; }
};

/// A quarter of the columns masked; every fifth row of a mask wholly.
inline Tensor<Byte> make_mask(const Shape& shape, I64 batches, const Setting& setting) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same every time
  Tensor<Byte> mask("mask", static_cast<std::size_t>(batches * shape.sq * shape.cols),
                    {.offset = setting.mask_offset, .exact = setting.exact});
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const bool whole = static_cast<I64>(i) / shape.cols % 5 == 4;
    mask[i].bits = whole || random() % 4 == 0 ? 1 : 0;
  }
  return mask;
}

/// Normally distributed, the same for the same size.
template <typename T>
Tensor<T> random_tensor(const char* name, std::size_t size, const Setting& setting) {
  std::mt19937 random(static_cast<unsigned>(size));
  std::normal_distribution<float> normal(0.0F, 3.0F);
  Tensor<T> tensor(name, size, setting);
  for (std::size_t i = 0; i < size; ++i) {
    tensor[i] = T::from(normal(random));
  }
  return tensor;
}

/// How far `got` is from `want`, beyond what is `excused`, in ulp of T.
template <typename T>
double in_ulp(double got, double want, double excused) {
  const double error = std::fabs(got - want) - excused;
  return std::isnan(error) ? kInfinity : std::max(0.0, error) / ulp<T>(want);
}

/// What errors, in ulp, a result may have: half an ulp of the store, and for a forward
/// kernel exponent and approximation of a 16-bit type, or exponential, sum and quotient
/// of a float. A backward kernel's sum is excused by its terms.
template <typename T>
constexpr double error_bound(bool is_forward) {
  return 0.5 + (!is_forward ? 0x1p-6 : sizeof(T) == 2 ? 0.1 : 3.0);
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
        y_("y", shape.size(), setting) {
    if (!is_forward(variant)) {
      fill_y();
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
    Tensor<T> out("out", shape_.size(), setting_);
    run_into(out, {.order = setting_.order});
    return out;
  }

  /// The largest error of a row of `out` in ulp, if `scale` is what was asked for.
  [[nodiscard]] double row_error(const Tensor<T>& out, I64 row, float scale) const {
    const T* const got = out.data() + row * shape_.cols;
    return is_forward(variant_) ? forward_error(row, got, scale)
                                : backward_error(row, got, scale);
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

  [[nodiscard]] double forward_error(I64 row, const T* got, float scale) const {
    const auto expected = softmax(values(in_.data() + row * shape_.cols, shape_.cols),
                                  scale, [&](I64 j) { return visible(row, j); });
    double worst = 0;
    for (I64 j = 0; j < shape_.cols; ++j) {
      if (!visible(row, j)) {
        EXPECT_EQ(got[j].value(), 0) << "masked: row " << row << " column " << j;
      }
      // Exponentials below 2^-125 may be 0.
      const double want = expected[static_cast<std::size_t>(j)];
      worst = std::max(worst, in_ulp<T>(got[j].value(), want, 0x1p-125));
    }
    return worst;
  }

  [[nodiscard]] double backward_error(I64 row, const T* got, float scale) const {
    const T* const y = y_.data() + row * shape_.cols;
    const auto expected =
        gradient(values(y, shape_.cols),
                 values(in_.data() + row * shape_.cols, shape_.cols), scale);
    double worst = 0;
    for (I64 j = 0; j < shape_.cols; ++j) {
      if (y[j].value() == 0) {
        EXPECT_EQ(got[j].value(), 0) << "y is 0: row " << row << " column " << j;
      }
      const auto at = static_cast<std::size_t>(j);
      const double rounding = 16 * 0x1p-24 * expected.magnitude[at] + 0x1p-149;
      worst = std::max(worst, in_ulp<T>(got[j].value(), expected.dx[at], rounding));
    }
    return worst;
  }

  void fill_y() {
    for (I64 row = 0; row < shape_.rows(); ++row) {
      const I64 at = row * shape_.cols;
      const auto row_of_y = softmax(values(in_.data() + at, shape_.cols), 0.5F,
                                    [&](I64 j) { return visible(row, j); });
      for (I64 j = 0; j < shape_.cols; ++j) {
        y_.data()[at + j] =
            T::from(static_cast<float>(row_of_y[static_cast<std::size_t>(j)]));
      }
    }
  }

  const Variant& variant_;
  const Shape shape_;
  Setting setting_;
  const Tensor<Byte> mask_;
  Tensor<T> in_;
  Tensor<T> y_;
};

}  // namespace kiln::softmax_test
