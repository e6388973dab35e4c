// Cross-entropy in double, as the definition says it, and how far a kernel may be off.
// A test gives both sides the same rounded inputs.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/tensors/element_types.h"

namespace kiln::cross_entropy_test {

using I64 = long long;  // a kernel's kiln_i64

/// Of one row.
struct Expected {
  double lse = 0;
  double loss = 0;
  double loss_terms = 0;  // sizes of what is added up to the loss
  std::vector<double> dx;
  std::vector<double> dx_terms;
};

/// Row `x`, whose target is a column; `scale` is that of the row.
inline Expected cross_entropy(const std::vector<double>& x, I64 target,
                              double smoothing, double scale) {
  const double top = *std::ranges::max_element(x);
  const auto cols = static_cast<double>(x.size());
  double sum = 0;
  double below = 0;
  for (const double v : x) {
    sum += std::exp(v - top);
    below += top - v;
  }
  const double missed =
      smoothing == 1 ? 0
                     : (1 - smoothing) * (top - x[static_cast<std::size_t>(target)]);
  const double smoothed = smoothing == 0 ? 0 : smoothing * below / cols;
  Expected expected;
  expected.lse = top + std::log(sum);
  expected.loss = std::log(sum) + missed + smoothed;
  expected.loss_terms = 1 + expected.loss;  // 1: a relative error of `sum`
  for (std::size_t j = 0; j < x.size(); ++j) {
    const double p = std::exp(x[j] - top) / sum;
    const bool at_target = static_cast<I64>(j) == target;
    const double q = smoothing / cols + (at_target ? 1 - smoothing : 0);
    expected.dx.push_back(scale * (p - q));
    expected.dx_terms.push_back(std::fabs(scale) * (p + q));
  }
  return expected;
}

/// The loss again, term by term: -sum(q * log softmax(x)).
inline double loss_of(const std::vector<double>& x, I64 target, double smoothing) {
  long double sum = 0;
  for (const double v : x) sum += std::exp(static_cast<long double>(v));
  long double loss = 0;
  for (std::size_t j = 0; j < x.size(); ++j) {
    const long double q = static_cast<long double>(smoothing) / x.size() +
                          (static_cast<I64>(j) == target ? 1 - smoothing : 0);
    loss -= q * (x[j] - std::log(sum));
  }
  return static_cast<double>(loss);
}

// Errors of what was added up: an addition's is 2^-24 of its terms.

/// 4 are for exponentials, the logarithm and what is added to it. All additions of a
/// sum off the same way would be log2 of their number and more; an eighth of it is too
/// much already.
inline double sum_error(std::size_t cols) {
  return (4 + std::log2(static_cast<double>(cols)) / 8) * 0x1p-24;
}

/// Of a gradient's terms. The exponent of a 16-bit type is rounded: up to 2^-18 of a
/// probability of e^-87, a 256th of an ulp.
template <typename T>
double dx_error(std::size_t cols) {
  return sum_error(cols) + (sizeof(T) == 2 ? 0x1p-18 : 0);
}

}  // namespace kiln::cross_entropy_test
