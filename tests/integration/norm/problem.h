// A norm and its gradients through their operations: tensors behind guards, the error
// against the reference.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "tests/integration/norm/configuration.h"
#include "tests/integration/norm/reference.h"
#include "tests/support/operations/run_operation.h"
#include "tests/support/tensors/element_types.h"
#include "tests/support/tensors/guarded_tensor.h"
#include "tests/support/tensors/numbers.h"

namespace kiln::norm_test {

using kiln_cpu::Order;
using kiln_cpu::Side;
using test::F32;
using test::in_ulp;
using test::kNaN;
using test::ReadOnly;
using test::ulp;
using test::values;
template <typename T>
using Tensor = test::GuardedTensor<T>;

/// What is asked of a kernel beside its configuration.
struct Setting {
  I64 rows = 3;
  I64 cols = 32;
  bool zero_centered = false;
  bool saves_statistics = true;
  bool has_dweight = true;
  float eps = 1e-5F;
  /// Of all tensors but float ones from a 16-byte boundary, in elements. Unset: what
  /// Side gives.
  std::optional<std::size_t> offset{};
  Side exact = Side::kEnd;
  Order order = Order::kAscending;
  int multiprocessors = 2;
  ComputeCapability capability{9, 0};
  bool in_large_tensors_too = false;
  [[nodiscard]] test::Place place() const { return {.offset = offset, .exact = exact}; }
  [[nodiscard]] test::Schedule schedule() const {
    return {.order = order,
            .multiprocessors = multiprocessors,
            .capability = capability,
            .in_large_tensors_too = in_large_tensors_too};
  }
  [[nodiscard]] std::size_t size() const {
    return static_cast<std::size_t>(rows * cols);
  }
};

inline std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.rows << "x" << setting.cols;
}

template <typename T>
Tensor<T> random_tensor(const char* name, std::size_t size, const test::Place& place,
                        float scale = 1.0F) {
  Tensor<T> tensor(name, size, place);
  test::fill_normally(std::span(tensor));
  for (T& element : tensor)
    element = T::from(static_cast<float>(element.value()) * scale);
  return tensor;
}

/// What it does wrong is a failure of the test.
inline void run_operation(const test::Operation& operation, const Setting& setting) {
  const auto done = test::run_operation(operation, setting.schedule());
  ASSERT_TRUE(done) << done.error().message;
}

/// How far results are off, in ulp of their type: beyond what float arithmetic may do,
/// and all in all.
struct Errors {
  double excess = 0;
  double all = 0;
  template <typename T>
  void take(double got, double want, double excused) {
    excess = std::max(excess, in_ulp<T>(got, want, excused));
    all = std::max(all, in_ulp<T>(got, want, 0));
  }
};

/// Half an ulp of the store, and what a reference that is no tie may be off from one.
inline constexpr double kStoreUlp = 0.5 + 0x1p-6;

/// rows x cols of type T, weights of type W.
template <typename T, typename W>
class Problem {
 public:
  Problem(const Configuration& configuration, const Setting& setting)
      : of_(configuration),
        setting_(setting),
        x(random_tensor<T>("x", setting.size(), setting.place())),
        residual(random_tensor<T>("residual", of_.residual ? setting.size() : 0,
                                  setting.place(), 0.5F)),
        weight(random_tensor<W>("weight", of_.weight ? cols() : 0, setting.place(),
                                0.25F)),
        bias(random_tensor<W>("bias", has_bias() ? cols() : 0, setting.place(), 0.3F)),
        dy(random_tensor<T>("dy", setting.size(), setting.place(), 0.4F)) {
    if (setting.size() > 1)
      std::rotate(dy.data(), dy.data() + 1, dy.data() + setting.size());
  }

  [[nodiscard]] bool has_bias() const { return of_.layer && of_.option; }
  [[nodiscard]] bool llama() const { return !of_.layer && of_.option; }
  /// What xh of a column is multiplied by, and what is added then.
  [[nodiscard]] double scale(std::size_t col) const {
    return of_.weight ? weight[col].value() + (setting_.zero_centered ? 1 : 0) : 1;
  }
  [[nodiscard]] double shift(std::size_t col) const {
    return has_bias() ? bias[col].value() : 0;
  }
  [[nodiscard]] std::size_t rows() const {
    return static_cast<std::size_t>(setting_.rows);
  }
  [[nodiscard]] std::size_t cols() const {
    return static_cast<std::size_t>(setting_.cols);
  }
  [[nodiscard]] Setting& setting() { return setting_; }

  /// What an operation is given, but for statistics, the residual, what it writes and
  /// its workspace.
  template <typename Args>
  [[nodiscard]] Args arguments() const {
    Args args;
    args.dtype = of_.dtype;
    args.weight_dtype = of_.weight_dtype;
    args.x = x.data();
    args.weight = of_.weight ? weight.data() : nullptr;
    args.has_weight = of_.weight;
    args.rows = setting_.rows;
    args.cols = setting_.cols;
    args.zero_centered_weight = setting_.zero_centered;
    args.adds_residual = of_.residual;
    if constexpr (requires { args.eps; })
      args.eps = setting_.eps;
    if constexpr (requires { args.has_bias; })
      args.has_bias = has_bias();
    if constexpr (requires {
                    args.eps;
                    args.bias;
                  })
      args.bias = has_bias() ? bias.data() : nullptr;
    if constexpr (requires { args.casting; })
      args.casting = llama() ? ops::RmsNormCasting::kLlama : ops::RmsNormCasting::kNone;
    return args;
  }

  struct Output {
    Tensor<T> y;
    Tensor<T> sum;
    Tensor<F32> mean;
    Tensor<F32> rstd;
  };

  [[nodiscard]] Output forward() const {
    Output out{{"y", setting_.size(), setting_.place()},
               {"sum", residual.size(), setting_.place()},
               {"mean", rows(), {.exact = setting_.exact}},
               {"rstd", rows(), {.exact = setting_.exact}}};
    const ReadOnly inputs(x, residual, weight, bias);
    const auto saved = [&](Tensor<F32>& tensor) {
      return setting_.saves_statistics ? reinterpret_cast<float*>(tensor.data())
                                       : nullptr;
    };
    const auto run = [&](auto args) {
      args.y = out.y.data();
      args.rstd = saved(out.rstd);
      args.residual = of_.residual ? residual.data() : nullptr;
      args.sum = of_.residual ? out.sum.data() : nullptr;
      if constexpr (requires { args.mean; })
        args.mean = saved(out.mean);
      run_operation(args, setting_);
    };
    if (of_.layer)
      run(arguments<ops::LayerNormForward>());
    else
      run(arguments<ops::RmsNormForward>());
    return out;
  }

  /// What row `row` is the norm of, as it is stored.
  [[nodiscard]] Row input(I64 row) const {
    Row all = values(x.data() + row * setting_.cols, setting_.cols);
    if (of_.residual) {
      const Row more = values(residual.data() + row * setting_.cols, setting_.cols);
      for (std::size_t j = 0; j < all.size(); ++j)
        all[j] =
            T::from(static_cast<float>(all[j]) + static_cast<float>(more[j])).value();
    }
    return all;
  }

  [[nodiscard]] Errors errors(const Output& out) const {
    Errors worst;
    for (I64 row = 0; row < setting_.rows && setting_.cols > 0; ++row)
      row_errors(out, row, worst);
    return worst;
  }
  void row_errors(const Output& out, I64 row, Errors& worst) const {
    const Row h = input(row);
    const Normal normal = normalize(h, of_.layer, setting_.eps);
    for (std::size_t j = 0; j < h.size(); ++j) {
      const std::size_t at = static_cast<std::size_t>(row * setting_.cols) + j;
      if (of_.residual) {
        EXPECT_EQ(out.sum[at].value(), h[j]) << "row " << row << " column " << j;
      }
      const double w = scale(j);
      const double b = shift(j);
      const double error = error_of_xh(normal, j, of_.layer);
      const double got = out.y[at].value();
      if (llama()) {  // at a tie either neighbour is right
        const auto rounded = [&](double xh) {
          return T::from(static_cast<float>(xh)).value() * w;
        };
        const double low = rounded(normal.xh[j] - error);
        const double high = rounded(normal.xh[j] + error);
        const auto off = [&](double want) {
          return in_ulp<T>(got, want, kRounding * std::fabs(want));
        };
        // In ulp, which are smaller below a power of two than above.
        const double want = off(low) < off(high) ? low : high;
        worst.take<T>(got, want, kRounding * std::fabs(want));
      } else {
        const double terms = std::fabs(normal.xh[j] * w) + std::fabs(b);
        worst.take<T>(got, normal.xh[j] * w + b,
                      std::fabs(w) * error + 3 * kRounding * terms);
      }
    }
    if (!setting_.saves_statistics)
      return;
    const double sum = roundings_of_sum(h.size());
    const auto at = static_cast<std::size_t>(row);
    Errors of_statistics;
    of_statistics.take<F32>(out.rstd[at].value(), normal.rstd,
                            kRounding * normal.rstd * (sum / 2 + 4));
    if (of_.layer) {
      of_statistics.take<F32>(out.mean[at].value(), normal.mean,
                              kRounding * sum * normal.deviation);
    }
    EXPECT_LE(of_statistics.excess, 1.0) << "row " << row;
  }

  struct GradientOutput {
    Tensor<T> dx;
    Tensor<W> dweight;
    Tensor<W> dbias;
  };

  /// In double, rounded to float; the backward pass is given these.
  struct Statistics {
    Tensor<F32> mean;
    Tensor<F32> rstd;
  };
  [[nodiscard]] Statistics statistics() const {
    Statistics both{{"mean", of_.layer ? rows() : 0, {.exact = setting_.exact}},
                    {"rstd", rows(), {.exact = setting_.exact}}};
    for (std::size_t row = 0; row < rows(); ++row) {
      const Normal normal = normalize(
          values(x.data() + static_cast<I64>(row) * setting_.cols, setting_.cols),
          of_.layer, setting_.eps);
      both.rstd[row] = F32::from(static_cast<float>(normal.rstd));
      if (of_.layer)
        both.mean[row] = F32::from(static_cast<float>(normal.mean));
    }
    return both;
  }

  /// y of the rows x, for backward passes from_output: in double, rounded.
  [[nodiscard]] Tensor<T> output() const {
    Tensor<T> y("y", of_.from_output ? setting_.size() : 0, setting_.place());
    for (std::size_t i = 0; i < y.size(); i += cols()) {
      const Normal normal =
          normalize(values(x.data() + i, setting_.cols), of_.layer, setting_.eps);
      for (std::size_t j = 0; j < cols(); ++j)
        y[i + j] = T::from(static_cast<float>(normal.xh[j] * scale(j) + shift(j)));
    }
    return y;
  }

  /// x is what the norm was taken of, `residual` the other gradient of it.
  [[nodiscard]] GradientOutput backward() const {
    GradientOutput out{{"dx", setting_.size(), setting_.place()},
                       {"dweight", weight.size(), setting_.place()},
                       {"dbias", bias.size(), setting_.place()}};
    const Statistics saved = statistics();
    const Tensor<T> y = output();
    const Device device = test::operations_device(setting_.schedule());
    const auto floats = [](const Tensor<F32>& tensor) {
      return reinterpret_cast<const float*>(tensor.data());
    };
    const auto run = [&](auto args, const auto& workspace_bytes) {
      args.dx = out.dx.data();
      args.has_dweight = setting_.has_dweight;
      args.dy = dy.data();
      args.rstd = floats(saved.rstd);
      if constexpr (requires { args.mean; })
        args.mean = of_.from_output ? nullptr : floats(saved.mean);
      args.from_output = of_.from_output;
      if (of_.from_output) {
        args.x = nullptr;
        args.y = y.data();
        if constexpr (requires { args.bias; })
          args.bias = has_bias() ? bias.data() : nullptr;
      }
      args.dsum = of_.residual ? residual.data() : nullptr;
      args.workspace_bytes = workspace_bytes(device, args).value();
      Tensor<F32> workspace("workspace", args.workspace_bytes / 4, {});
      if (setting_.has_dweight && of_.weight) {  // else they stay null
        args.workspace = workspace.data();
        args.dweight = out.dweight.data();
        if constexpr (requires { args.dbias; })
          args.dbias = has_bias() ? out.dbias.data() : nullptr;
      }
      const ReadOnly inputs(x, y, residual, weight, bias, dy, saved.mean, saved.rstd);
      run_operation(args, setting_);
    };
    if (of_.layer)
      run(arguments<ops::LayerNormBackward>(), ops::layernorm_backward_workspace_bytes);
    else
      run(arguments<ops::RmsNormBackward>(), ops::rmsnorm_backward_workspace_bytes);
    return out;
  }

  [[nodiscard]] Errors errors(const GradientOutput& out) const {
    const auto [mean, rstd] = statistics();
    const Tensor<T> y = output();
    const std::size_t cols = this->cols();
    // A weight and its offset, a bias, a reciprocal and its product; or mean and rstd.
    const double roundings_of_xh = of_.from_output ? 5 : 2;
    Row dweight(cols), dbias(cols), all_dweight(cols), all_dbias(cols);
    Errors worst;
    for (std::size_t row = 0; row < rows(); ++row) {
      Row g(cols);
      Row xh(cols);
      for (std::size_t j = 0; j < cols; ++j) {
        const std::size_t at = row * cols + j;
        const double m = of_.layer ? mean[row].value() : 0;
        xh[j] = of_.from_output ? undone(y[at].value(), scale(j), shift(j), cols)
                                : (x[at].value() - m) * rstd[row].value();
        const double d = dy[at].value();
        g[j] = d * scale(j);
        dweight[j] += d * xh[j];
        all_dweight[j] += std::fabs(d * xh[j]);
        dbias[j] += d;
        all_dbias[j] += std::fabs(d);
      }
      const Gradients want =
          gradients(g, xh, rstd[row].value(), of_.layer, roundings_of_xh);
      for (std::size_t j = 0; j < cols; ++j) {
        const std::size_t at = row * cols + j;
        const double more = of_.residual ? residual[at].value() : 0;
        worst.take<T>(out.dx[at].value(), want.dx[j] + more,
                      want.dx_error[j] + kRounding * (std::fabs(want.dx[j] + more)));
      }
    }
    // One rounding for each row of a thread, and a tree of blocks.
    const double sum = static_cast<double>(rows()) + 40;
    for (std::size_t j = 0; j < cols && setting_.has_dweight && of_.weight; ++j) {
      worst.take<W>(out.dweight[j].value(), dweight[j],
                    kRounding * (sum + roundings_of_xh) * all_dweight[j]);
      if (has_bias())
        worst.take<W>(out.dbias[j].value(), dbias[j], kRounding * sum * all_dbias[j]);
    }
    return worst;
  }

 private:
  Configuration of_;
  Setting setting_;

 public:
  // Mutable by tests before a run; declared after what they are made with.
  Tensor<T> x;
  Tensor<T> residual;
  Tensor<W> weight;
  Tensor<W> bias;
  Tensor<T> dy;
};

/// Calls `function` with T of the rows and W of the weights.
template <typename Function>
void with_types(const Configuration& configuration, const Function& function) {
  test::with_types(configuration.dtype,
                   configuration.weight_dtype == configuration.dtype, function);
}

}  // namespace kiln::norm_test
