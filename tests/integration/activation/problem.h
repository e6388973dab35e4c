// One problem for one unit: tensors behind guards, the operations, the errors against
// the reference.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/activation/reference.h"
#include "tests/integration/activation/unit.h"
#include "tests/support/operations/run_operation.h"
#include "tests/support/tensors/element_types.h"
#include "tests/support/tensors/guarded_tensor.h"
#include "tests/support/tensors/numbers.h"

namespace kiln::activation_test {

using I64 = long long;
using kiln_cpu::Order;
using kiln_cpu::Side;
using test::F32;
using test::kInfinity;
using test::kNaN;
using test::with_type;
template <typename T>
using Tensor = test::GuardedTensor<T>;

struct Shape {
  I64 rows = 1;
  I64 cols = 1;
  [[nodiscard]] std::size_t size() const {
    return static_cast<std::size_t>(rows * cols);
  }
};

struct Setting {
  ops::GluLayout layout = ops::GluLayout::kPacked;
  /// Of all tensors from a 16-byte boundary, in elements. Unset: what Side gives.
  std::optional<std::size_t> offset{};
  Side exact = Side::kEnd;
  Order order = Order::kAscending;
  I64 most_blocks = 1 << 30;  // of every grid: the kernels compute all with it
  int multiprocessors = 4;
  bool in_large_tensors_too = false;
  Limits limits{.alpha = 1.702F, .limit = 4.0F, .offset = 1.0F};

  [[nodiscard]] test::Schedule schedule() const {
    return {.order = order,
            .multiprocessors = multiprocessors,
            .most = {{"blocks", most_blocks}},
            .in_large_tensors_too = in_large_tensors_too};
  }
};

/// Where tensors are.
struct Pointers {
  void* y = nullptr;
  void* dx = nullptr;
  void* dlinear = nullptr;
  void* dbias = nullptr;
  float* dweight = nullptr;
  const void* x = nullptr;
  const void* linear = nullptr;
  const void* dy = nullptr;
  const void* bias = nullptr;
  const float* weight = nullptr;
};

/// What an operation of `unit` is given, but for its workspace.
template <typename Args>
Args arguments(const Unit& unit, const Shape& shape, const Setting& setting,
               const Pointers& at) {
  [[maybe_unused]] const bool is_split = setting.layout == ops::GluLayout::kSplit;
  Args args;
  args.dtype = unit.type();
  args.x = at.x;
  args.has_bias = unit.has_bias;
  args.bias = unit.has_bias ? at.bias : nullptr;
  args.rows = shape.rows;
  args.cols = shape.cols;
  if constexpr (requires { args.dx; }) {
    args.dx = at.dx;
    args.dy = at.dy;
    args.dbias = unit.has_bias ? at.dbias : nullptr;
  } else {
    args.y = at.y;
  }
  if constexpr (requires { args.layout; }) {
    args.kind = unit.glu_kind();
    args.layout = setting.layout;
    args.linear = is_split ? at.linear : nullptr;
    args.has_weight = unit.has_weight;
    args.weight = unit.has_weight ? at.weight : nullptr;
    args.alpha = setting.limits.alpha;
    args.limit = setting.limits.limit;
    args.offset = setting.limits.offset;
  } else {
    args.kind = unit.kind();
  }
  if constexpr (requires { args.dweight; }) {
    args.dlinear = is_split ? at.dlinear : nullptr;
    args.dweight = unit.has_weight ? at.dweight : nullptr;
  }
  return args;
}

/// In units of 2^-24 of the terms: what a kernel's arithmetic may lose beside the
/// rounding at the store. prelude.cuh promises it of the activations; a product more
/// takes one unit.
template <typename T>
double arithmetic_bound(const Unit& unit) {
  if (sizeof(T) == 2)
    return 0x1p-15;
  const double act = unit.act == Act::kGeluErf                                 ? 6
                     : unit.act == Act::kRelu || unit.act == Act::kSquaredRelu ? 1
                                                                               : 5;
  return (act + (unit.gated ? 2 : 0) + (unit.has_weight ? 1 : 0)) * 0x1p-24;
}

/// The errors of results, in ulp of T: the worst of those that are no sum, and the
/// worst of all beyond what arithmetic is excused of, which may be half an ulp and a
/// bit.
struct Errors {
  double worst = 0;
  double beyond = 0;
  /// `magnitude`: of the terms. `tiny`: what a vanished sigmoid would have been
  /// multiplied by.
  template <typename T>
  void add(double got, double want, double bound, double magnitude, double tiny) {
    const double excused = 0x1p-125 * tiny + 0x1p-149;
    if (magnitude == std::fabs(want))
      worst = std::max(worst, test::in_ulp<T>(got, want, excused));
    beyond = std::max(beyond, test::in_ulp<T>(got, want, excused + bound * magnitude));
  }
  [[nodiscard]] bool are_small() const { return beyond <= 0.5 + 0x1p-6; }
};

/// The outputs of both passes.
template <typename T>
struct Results {
  Tensor<T> y;
  Tensor<T> dx;
  Tensor<T> dlinear;
  Tensor<T> dbias;
  Tensor<F32> dweight;

  friend bool same_bits(const Results& a, const Results& b) {
    return same_bits(a.y, b.y) && same_bits(a.dx, b.dx) &&
           same_bits(a.dlinear, b.dlinear) && same_bits(a.dbias, b.dbias) &&
           same_bits(a.dweight, b.dweight);
  }
};

template <typename T>
class Problem {
 public:
  Problem(const Unit& unit, const Shape& shape, const Setting& setting)
      : unit_(unit),
        shape_(shape),
        setting_(setting),
        x_("x", shape.size() * (is_packed() ? 2 : 1), place()),
        linear_("linear", is_split() ? shape.size() : 0, place()),
        bias_("bias", unit.has_bias ? bias_size() : 0, place()),
        weight_("weight", unit.has_weight ? rows() : 0, place()),
        dy_("dy", shape.size(), place()) {
    std::vector<T> in(shape.size() * static_cast<std::size_t>(unit.halves()));
    test::fill_normally(std::span(in));
    for (I64 row = 0; row < shape.rows; ++row) {
      for (int half = 0; half < unit.halves(); ++half) {
        for (I64 col = 0; col < shape.cols; ++col)
          this->in(half, row, col) = in[static_cast<std::size_t>(
              (row * unit.halves() + half) * shape.cols + col)];
      }
    }
    test::fill_normally(std::span(bias_));
    test::fill_normally(std::span(weight_));
    test::fill_normally(std::span(dy_));
    std::ranges::reverse(dy_);
  }

  [[nodiscard]] Setting& setting() { return setting_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] Tensor<F32>& weight() { return weight_; }
  [[nodiscard]] Tensor<T>& bias() { return bias_; }
  [[nodiscard]] Tensor<T>& dy() { return dy_; }
  /// An element of x or the gate (half 0), or of the linear half.
  T& in(int half, I64 row, I64 col) {
    if (half == 1 && is_split())
      return linear_.data()[row * shape_.cols + col];
    return x_.data()[row * x_stride() + half * shape_.cols + col];
  }
  [[nodiscard]] T in(int half, I64 row, I64 col) const {
    return const_cast<Problem*>(this)->in(half, row, col);
  }
  /// The gradient by that.
  [[nodiscard]] double gradient(const Results<T>& results, int half, I64 row,
                                I64 col) const {
    if (half == 1 && is_split())
      return results.dlinear[static_cast<std::size_t>(row * shape_.cols + col)].value();
    return results
        .dx[static_cast<std::size_t>(row * x_stride() + half * shape_.cols + col)]
        .value();
  }

  /// Both passes. What they do wrong is a failure of the test.
  [[nodiscard]] Results<T> run() {
    const std::size_t rows_of_weight = unit_.has_weight ? rows() : 0;
    Results<T> results{{"y", shape_.size(), place()},
                       {"dx", x_.size(), place()},
                       {"dlinear", linear_.size(), place()},
                       {"dbias", bias_.size(), place()},
                       {"dweight", rows_of_weight, place()}};
    if (unit_.gated) {
      run(arguments_for<ops::GluForward>(results));
      run_with_workspace(arguments_for<ops::GluBackward>(results),
                         ops::glu_backward_workspace_bytes);
    } else {
      run(arguments_for<ops::ActivationForward>(results));
      run_with_workspace(arguments_for<ops::ActivationBackward>(results),
                         ops::activation_backward_workspace_bytes);
    }
    return results;
  }

  /// The errors, if `unit` is what was computed.
  [[nodiscard]] Errors errors(const Results<T>& results, const Unit& unit) const {
    Errors all;
    const double bound = arithmetic_bound<T>(unit_);
    for (I64 row = 0; row < shape_.rows; ++row) {
      for (I64 col = 0; col < shape_.cols; ++col) {
        const Element element = element_at(unit, row, col);
        const double tiny = tiny_at(row, col);
        const auto at = static_cast<std::size_t>(row * shape_.cols + col);
        all.add<T>(results.y[at].value(), element.y, bound, std::fabs(element.y), tiny);
        const double dy = dy_[at].value();
        all.add<T>(gradient(results, 0, row, col), element.by_input.value * dy, bound,
                   element.by_input.terms * std::fabs(dy), 64 * tiny * std::fabs(dy));
        if (unit.gated) {
          const double want = element.by_linear * dy;
          all.add<T>(gradient(results, 1, row, col), want, bound, std::fabs(want),
                     tiny * std::fabs(dy));
        }
      }
    }
    add_bias_errors(results, unit, bound, all);
    add_weight_errors(results, unit, bound, all);
    return all;
  }

  /// The worst error in ulp, with a failure where one is too large.
  [[nodiscard]] double run_and_check() {
    const Errors all = errors(run(), unit_);
    EXPECT_TRUE(all.are_small()) << all.beyond << " ulp beyond arithmetic";
    return all.worst;
  }

 private:
  [[nodiscard]] bool is_packed() const {
    return unit_.gated && setting_.layout == ops::GluLayout::kPacked;
  }
  [[nodiscard]] bool is_split() const { return unit_.gated && !is_packed(); }
  [[nodiscard]] I64 x_stride() const { return (is_packed() ? 2 : 1) * shape_.cols; }
  [[nodiscard]] std::size_t rows() const {
    return static_cast<std::size_t>(shape_.rows);
  }
  [[nodiscard]] std::size_t bias_size() const {
    return static_cast<std::size_t>(unit_.halves() * shape_.cols);
  }
  [[nodiscard]] test::Place place() const {
    return {.offset = setting_.offset, .exact = setting_.exact};
  }

  /// x + bias as a float: what the activation is taken of.
  [[nodiscard]] double u(int half, I64 row, I64 col) const {
    const auto x = static_cast<float>(in(half, row, col).value());
    if (!unit_.has_bias)
      return x;
    const auto at = static_cast<std::size_t>(half * shape_.cols + col);
    return x + static_cast<float>(bias_[at].value());
  }
  [[nodiscard]] double weight_at(I64 row) const {
    return unit_.has_weight ? weight_[static_cast<std::size_t>(row)].value() : 1;
  }
  [[nodiscard]] Element element_at(const Unit& unit, I64 row, I64 col) const {
    return element_of(unit, setting_.limits, u(0, row, col),
                      unit_.gated ? u(1, row, col) : 0, weight_at(row));
  }
  [[nodiscard]] double tiny_at(I64 row, I64 col) const {
    const double linear = unit_.gated ? std::fabs(u(1, row, col)) : 0;
    return (1 + std::fabs(u(0, row, col))) * (2 + linear) *
           (1 + std::fabs(weight_at(row)));
  }

  void add_bias_errors(const Results<T>& results, const Unit& unit, double bound,
                       Errors& all) const {
    if (!unit_.has_bias)
      return;
    // In units of 2^-24: additions one after the other, in a part and over the parts.
    const auto parts = static_cast<double>(std::max<std::size_t>(1, parts_));
    const double chain = static_cast<double>(shape_.rows) / parts + parts / 4 + 16;
    for (int half = 0; half < unit.halves(); ++half) {
      for (I64 col = 0; col < shape_.cols; ++col) {
        double want = 0;
        double magnitude = 0;
        double terms = 0;
        double tiny = 0;
        for (I64 row = 0; row < shape_.rows; ++row) {
          const Element element = element_at(unit, row, col);
          const double dy =
              dy_[static_cast<std::size_t>(row * shape_.cols + col)].value();
          const double term =
              dy * (half == 0 ? element.by_input.value : element.by_linear);
          want += term;
          terms += std::fabs(term);
          magnitude += std::fabs(dy) * (half == 0 ? element.by_input.terms
                                                  : std::fabs(element.by_linear));
          tiny += 64 * tiny_at(row, col) * std::fabs(dy);
        }
        const auto at = static_cast<std::size_t>(half * shape_.cols + col);
        all.add<T>(results.dbias[at].value(), want, 1,
                   bound * magnitude + chain * 0x1p-24 * terms, tiny);
      }
    }
  }

  void add_weight_errors(const Results<T>& results, const Unit& unit, double bound,
                         Errors& all) const {
    if (!unit_.has_weight)
      return;
    // A thread adds up its elements, then 5 + 2 steps join threads and warps.
    const double chain = static_cast<double>(shape_.cols) / 32 + 16;
    for (I64 row = 0; row < shape_.rows; ++row) {
      double want = 0;
      double terms = 0;
      double tiny = 0;
      for (I64 col = 0; col < shape_.cols; ++col) {
        const double dy =
            dy_[static_cast<std::size_t>(row * shape_.cols + col)].value();
        const double term = dy * element_at(unit, row, col).by_weight;
        want += term;
        terms += std::fabs(term);
        tiny += tiny_at(row, col) * std::fabs(dy);
      }
      const double got = results.dweight[static_cast<std::size_t>(row)].value();
      all.add<F32>(got, want, 1, (bound + chain * 0x1p-24) * terms, tiny);
    }
  }

  template <typename Args>
  [[nodiscard]] Args arguments_for(Results<T>& results) const {
    return arguments<Args>(unit_, shape_, setting_,
                           {.y = results.y.data(),
                            .dx = results.dx.data(),
                            .dlinear = results.dlinear.data(),
                            .dbias = results.dbias.data(),
                            .dweight = reinterpret_cast<float*>(results.dweight.data()),
                            .x = x_.data(),
                            .linear = linear_.data(),
                            .dy = dy_.data(),
                            .bias = bias_.data(),
                            .weight = reinterpret_cast<const float*>(weight_.data())});
  }

  template <typename Args>
  void run_with_workspace(Args args, Result<std::uint64_t> (*bytes_of)(const Device&,
                                                                       const Args&)) {
    const auto bytes = bytes_of(test::operations_device(setting_.schedule()), args);
    ASSERT_TRUE(bytes) << bytes.error().message;
    parts_ =
        unit_.has_bias && shape_.cols > 0 ? *bytes / sizeof(float) / bias_size() : 0;
    Tensor<F32> workspace("workspace", *bytes / sizeof(float),
                          {.exact = setting_.exact});
    args.workspace = workspace.data();
    args.workspace_bytes = *bytes;
    run(args);
  }

  void run(const test::Operation& operation) {
    const test::ReadOnly inputs(x_, linear_, bias_, weight_, dy_);
    const auto done = test::run_operation(operation, setting_.schedule());
    ASSERT_TRUE(done) << done.error().message;
  }

  const Unit& unit_;
  const Shape shape_;
  Setting setting_;
  std::size_t parts_ = 0;  // of the bias's gradient
  Tensor<T> x_;
  Tensor<T> linear_;
  Tensor<T> bias_;
  Tensor<F32> weight_;
  Tensor<T> dy_;
};

}  // namespace kiln::activation_test
