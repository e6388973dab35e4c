// The softmax kernels' definitions in double. A test gives both sides the same rounded
// inputs.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tests/support/tensors/finite_differences.h"

namespace kiln::softmax_test {

/// softmax(scale * x) of one row; 0 where `visible(j)` is false, and `masked_row`
/// everywhere if it never is.
template <typename Visible>
std::vector<double> softmax(const std::vector<double>& x, double scale, Visible visible,
                            double masked_row = 0) {
  std::vector<double> y(x.size(), 0.0);
  double top = -std::numeric_limits<double>::infinity();
  for (std::size_t j = 0; j < x.size(); ++j) {
    if (visible(static_cast<std::int64_t>(j))) {
      top = std::max(top, scale * x[j]);
    }
  }
  double sum = 0;
  for (std::size_t j = 0; j < x.size(); ++j) {
    if (visible(static_cast<std::int64_t>(j))) {
      y[j] = std::exp(scale * x[j] - top);
      sum += y[j];
    }
  }
  for (double& value : y) {
    value = sum == 0 ? masked_row : value / sum;
  }
  return y;
}

struct Gradient {
  std::vector<double> dx;
  std::vector<double> magnitude;  // of the terms that were added and subtracted
};

/// The gradient of sum(dy * y) by x for one row y = softmax(scale * x).
inline Gradient gradient(const std::vector<double>& y, const std::vector<double>& dy,
                         double scale) {
  double sum = 0;
  double sum_magnitude = 0;
  for (std::size_t j = 0; j < y.size(); ++j) {
    sum += y[j] * dy[j];
    sum_magnitude += std::fabs(y[j] * dy[j]);
  }
  Gradient result;
  for (std::size_t j = 0; j < y.size(); ++j) {
    const double weight = scale * y[j];
    result.dx.push_back(weight * (dy[j] - sum));
    result.magnitude.push_back(std::fabs(weight) * (std::fabs(dy[j]) + sum_magnitude));
  }
  return result;
}

/// The same out of the definition alone: how sum(dy * y) changes with each x, by
/// central differences. Good to about 1e-9 of the largest |scale * dy|.
template <typename Visible>
std::vector<double> finite_differences(std::vector<double> x,
                                       const std::vector<double>& dy, double scale,
                                       Visible visible) {
  return test::finite_differences(std::move(x), 1e-5, [&](const auto& at) {
    const auto y = softmax(at, scale, visible);
    double sum = 0;
    for (std::size_t j = 0; j < y.size(); ++j) {
      sum += dy[j] * y[j];
    }
    return sum;
  });
}

}  // namespace kiln::softmax_test
