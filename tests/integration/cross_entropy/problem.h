// One problem for the cross-entropy operations: tensors behind guards, errors against
// the reference.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/cross_entropy/reference.h"
#include "tests/support/operations/run_operation.h"
#include "tests/support/tensors/element_types.h"
#include "tests/support/tensors/guarded_tensor.h"
#include "tests/support/tensors/numbers.h"

namespace kiln::cross_entropy_test {

using kiln_cpu::Order;
using kiln_cpu::Side;
using ops::DType;
using ops::TargetType;
using test::F32;
using test::kInfinity;
using test::kNaN;
template <typename T>
using Tensor = test::GuardedTensor<T>;

template <typename T>
constexpr DType kDtype = DType::kF32;
template <>
constexpr DType kDtype<test::F16> = DType::kF16;
template <>
constexpr DType kDtype<test::Bf16> = DType::kBf16;

/// At first no column and not ignored.
template <typename Integer>
using Target = test::Whole<Integer, -1>;

/// What an operation is given beside its tensors' numbers.
struct Setting {
  I64 rows = 3;
  I64 vocabulary = 1;
  I64 padded_vocabulary = 0;  // as in the arguments: 0 is what follows from the others
  I64 logits_stride = 0;
  I64 dlogits_stride = 0;
  float smoothing = 0;
  float scale = 1;
  bool row_scale = false;  // row + 0.5
  TargetType target_type = TargetType::kInt64;
  I64 ignored_index = -100;
  /// Of the tensor from a 16-byte boundary, in elements. Unset: what Side gives.
  std::optional<std::size_t> logits_offset{};
  std::optional<std::size_t> dlogits_offset{};
  Side exact = Side::kEnd;
  Order order = Order::kAscending;
  bool in_large_tensors_too = false;

  [[nodiscard]] I64 padded() const {
    return padded_vocabulary == 0 ? vocabulary : padded_vocabulary;
  }
  [[nodiscard]] I64 stride_of_logits() const {
    return logits_stride == 0 ? padded() : logits_stride;
  }
  [[nodiscard]] I64 stride_of_dlogits() const {
    return dlogits_stride == 0 ? padded() : dlogits_stride;
  }
  [[nodiscard]] std::size_t logits_size() const {
    return static_cast<std::size_t>((rows - 1) * stride_of_logits() + vocabulary);
  }
  [[nodiscard]] std::size_t dlogits_size() const {
    return static_cast<std::size_t>((rows - 1) * stride_of_dlogits() + padded());
  }
  [[nodiscard]] double scale_of(I64 row) const {
    return static_cast<double>(scale) *
           (row_scale ? static_cast<double>(row) + 0.5 : 1.0);
  }
};

inline std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.rows << " rows of " << setting.vocabulary << " padded to "
             << setting.padded() << ", strides " << setting.stride_of_logits()
             << " and " << setting.stride_of_dlogits() << ", smoothing "
             << setting.smoothing;
}

/// What the operations write, NaN at first.
template <typename T>
struct Output {
  explicit Output(const Setting& setting)
      : loss("loss", rows(setting)),
        lse("lse", rows(setting)),
        saved("saved", 2 * rows(setting)),
        dlogits("dlogits", setting.dlogits_size(),
                {.offset = setting.dlogits_offset, .exact = setting.exact}) {}
  static std::size_t rows(const Setting& setting) {
    return static_cast<std::size_t>(setting.rows);
  }
  Tensor<F32> loss;
  Tensor<F32> lse;
  Tensor<F32> saved;
  Tensor<T> dlogits;
};

/// Errors in units of what they may be: 1 is the bound. Of dx in ulp, beyond what its
/// terms excuse: 0.5 is the bound.
struct Errors {
  double loss = 0;
  double dx_ulp = 0;
};

/// Logits are random, what lies between rows and beyond the vocabulary is NaN. Every
/// fifth row, from the fourth on, is ignored.
template <typename T>
class Problem {
 public:
  explicit Problem(const Setting& setting)
      : setting_(setting),
        logits_("logits", setting.logits_size(),
                {.offset = setting.logits_offset, .exact = setting.exact}),
        wide_("targets", Output<T>::rows(setting)),
        narrow_("targets", Output<T>::rows(setting)),
        row_scale_("row_scale", Output<T>::rows(setting)) {
    std::mt19937_64 random(static_cast<std::uint64_t>(setting.vocabulary));
    std::normal_distribution<float> normal(0.0F, 3.0F);
    for (I64 row = 0; row < setting.rows; ++row) {
      for (I64 j = 0; j < setting.vocabulary; ++j)
        logit(row, j) = T::from(normal(random));
      const auto column =
          static_cast<I64>(random() % static_cast<std::uint64_t>(setting.vocabulary));
      set_target(row, row % 5 == 3 ? setting.ignored_index : column);
      row_scale_[static_cast<std::size_t>(row)].bits = static_cast<float>(row) + 0.5F;
    }
  }

  [[nodiscard]] Setting& setting() { return setting_; }
  T& logit(I64 row, I64 j) {
    return logits_.data()[row * setting_.stride_of_logits() + j];
  }
  void set_target(I64 row, I64 target) {
    wide_[static_cast<std::size_t>(row)].bits = target;
    narrow_[static_cast<std::size_t>(row)].bits = static_cast<std::int32_t>(target);
  }
  [[nodiscard]] I64 target(I64 row) const {
    return wide_[static_cast<std::size_t>(row)].bits;
  }
  [[nodiscard]] bool is_ignored(I64 row) const {
    return target(row) == setting_.ignored_index;
  }

  /// What the operations are given.
  [[nodiscard]] ops::CrossEntropy fused_args(Output<T>& out) {
    auto args = rows_of<ops::CrossEntropy>();
    args.loss = &out.loss.data()->bits;
    args.lse = &out.lse.data()->bits;
    add_gradient(args, out);
    return args;
  }
  [[nodiscard]] ops::CrossEntropyForward forward_args(Output<T>& out) {
    auto args = rows_of<ops::CrossEntropyForward>();
    args.loss = &out.loss.data()->bits;
    args.lse = &out.lse.data()->bits;
    args.saved = &out.saved.data()->bits;
    return args;
  }
  [[nodiscard]] ops::CrossEntropyBackward backward_args(Output<T>& out) {
    auto args = rows_of<ops::CrossEntropyBackward>();
    args.saved = &out.saved.data()->bits;
    add_gradient(args, out);
    return args;
  }

  /// What an operation does wrong is a failure of the test.
  void run(const test::Operation& operation) {
    run(operation, {.order = setting_.order,
                    .in_large_tensors_too = setting_.in_large_tensors_too});
  }
  /// Wherever the pointers lead.
  void run_unchecked(const test::Operation& operation) {
    run(operation, {.order = setting_.order, .checks_pointers = false});
  }

  [[nodiscard]] Output<T> fused() {
    Output<T> out(setting_);
    run(fused_args(out));
    return out;
  }
  [[nodiscard]] Output<T> forward_and_backward() {
    Output<T> out(setting_);
    run(forward_args(out));
    const test::ReadOnly inputs(out.saved);
    run(backward_args(out));
    return out;
  }

  [[nodiscard]] Expected expected(I64 row) const {
    const T* const at = logits_.data() + row * setting_.stride_of_logits();
    return cross_entropy(test::values(at, setting_.vocabulary), target(row),
                         setting_.smoothing, setting_.scale_of(row));
  }

  [[nodiscard]] const T* gradient_row(const Output<T>& out, I64 row) const {
    return out.dlogits.data() + row * setting_.stride_of_dlogits();
  }

  /// The largest errors of `out`, with a failure where they are too large, and where
  /// something is written between rows.
  Errors check(const Output<T>& out) const {
    SCOPED_TRACE(testing::Message() << setting_);
    Errors worst;
    for (I64 row = 0; row < setting_.rows; ++row) {
      const Errors errors =
          is_ignored(row) ? check_ignored(out, row) : check_row(out, row);
      worst.loss = std::max(worst.loss, errors.loss);
      worst.dx_ulp = std::max(worst.dx_ulp, errors.dx_ulp);
      check_padding(out, row);
    }
    EXPECT_LE(worst.loss, 1);
    EXPECT_LE(worst.dx_ulp, 0.5);
    return worst;
  }
  Errors run_and_check() { return check(fused()); }

 private:
  void run(const test::Operation& operation, const test::Schedule& schedule) {
    const test::ReadOnly inputs(logits_, wide_, narrow_, row_scale_);
    const auto done = test::run_operation(operation, schedule);
    ASSERT_TRUE(done) << done.error().message;
  }

  template <typename Args>
  Args rows_of() {
    const bool wide = setting_.target_type == TargetType::kInt64;
    Args args;
    args.dtype = kDtype<T>;
    args.logits = logits_.data();
    args.targets = wide ? static_cast<const void*>(wide_.data()) : narrow_.data();
    args.target_type = setting_.target_type;
    args.ignored_index = setting_.ignored_index;
    args.rows = setting_.rows;
    args.vocabulary = setting_.vocabulary;
    args.logits_stride = setting_.stride_of_logits();
    args.smoothing = setting_.smoothing;
    return args;
  }

  template <typename Args>
  void add_gradient(Args& args, Output<T>& out) {
    args.dlogits = out.dlogits.data();
    args.padded_vocabulary = setting_.padded_vocabulary;
    args.dlogits_stride = setting_.dlogits_stride;
    args.scale = setting_.scale;
    args.row_scale = setting_.row_scale ? &row_scale_.data()->bits : nullptr;
  }

  [[nodiscard]] Errors check_row(const Output<T>& out, I64 row) const {
    const Expected want = expected(row);
    const auto at = static_cast<std::size_t>(row);
    const std::size_t cols = want.dx.size();
    const auto in_bounds = [](double got, double wanted, double bound) {
      const double error = std::fabs(got - wanted) / bound;
      return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    };
    const double bound = sum_error(cols) * want.loss_terms;
    Errors errors;
    errors.loss = std::max(in_bounds(out.loss[at].value(), want.loss, bound),
                           in_bounds(out.lse[at].value(), want.lse,
                                     bound + 0x1p-24 * std::fabs(want.lse)));
    const T* const got = gradient_row(out, row);
    for (std::size_t j = 0; j < cols; ++j) {
      // Exponentials below 2^-125 may be 0.
      const double excused = dx_error<T>(cols) * want.dx_terms[j] +
                             0x1p-125 * std::fabs(setting_.scale_of(row)) + 0x1p-149;
      errors.dx_ulp =
          std::max(errors.dx_ulp, test::in_ulp<T>(got[j].value(), want.dx[j], excused));
    }
    return errors;
  }

  [[nodiscard]] Errors check_ignored(const Output<T>& out, I64 row) const {
    const auto at = static_cast<std::size_t>(row);
    EXPECT_EQ(out.loss[at].bits, 0) << "ignored row " << row;
    EXPECT_EQ(out.lse[at].bits, 0) << "ignored row " << row;
    const T* const got = gradient_row(out, row);
    const bool zero = std::all_of(got, got + setting_.vocabulary,
                                  [](const T& dx) { return dx.value() == 0; });
    EXPECT_TRUE(zero) << "ignored row " << row;
    return {};
  }

  void check_padding(const Output<T>& out, I64 row) const {
    const T* const got = gradient_row(out, row);
    const bool zero = std::all_of(got + setting_.vocabulary, got + setting_.padded(),
                                  [](const T& dx) { return dx.value() == 0; });
    EXPECT_TRUE(zero) << "padding of row " << row;
    if (row + 1 < setting_.rows) {
      const bool untouched =
          std::all_of(got + setting_.padded(), got + setting_.stride_of_dlogits(),
                      [](const T& dx) { return std::isnan(dx.value()); });
      EXPECT_TRUE(untouched) << "after row " << row;
    }
  }

  Setting setting_;
  Tensor<T> logits_;
  Tensor<Target<std::int64_t>> wide_;
  Tensor<Target<std::int32_t>> narrow_;
  Tensor<F32> row_scale_;
};

using ElementTypes = testing::Types<test::F16, test::Bf16, F32>;

/// What GoogleTest calls them.
struct TypeNames {
  template <typename T>
  static std::string GetName(int /*index*/) {
    return std::string(to_string(kDtype<T>));
  }
};

}  // namespace kiln::cross_entropy_test
