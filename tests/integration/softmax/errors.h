// How far a softmax kernel's results are from the reference, and how far they may be.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/integration/softmax/reference.h"
#include "tests/integration/softmax/shape.h"
#include "tests/support/tensors/numbers.h"

namespace kiln::softmax_test {

using test::in_ulp;
using test::ulp;
using test::values;

/// What errors, in ulp, a result may have: half an ulp of the store, and for a forward
/// kernel exponent and approximation of a 16-bit type, or exponential, sum and quotient
/// of a float. A backward kernel's sum is excused by its terms.
template <typename T>
constexpr double error_bound(bool is_forward) {
  return 0.5 + (!is_forward ? 0x1p-6 : sizeof(T) == 2 ? 0.1 : 3.0);
}

/// The largest error in ulp of one row `got` of softmax(scale * x), with a failure
/// where a masked element is not 0. `visible(j)` says what is not masked.
template <typename T, typename Visible>
double forward_error(const T* x, const T* got, I64 cols, float scale, Visible visible) {
  const auto expected = softmax(values(x, cols), scale, visible);
  double worst = 0;
  for (I64 j = 0; j < cols; ++j) {
    if (!visible(j)) {
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

}  // namespace kiln::softmax_test
