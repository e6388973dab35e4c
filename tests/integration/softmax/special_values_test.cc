// NaN, infinities and extremes in the softmax kernels, visible and masked.

#include <gtest/gtest.h>

#include "tests/integration/softmax/problem.h"

namespace kiln::softmax_test {
namespace {

class SoftmaxValues : public testing::TestWithParam<Variant> {};
class ForwardSoftmaxValues : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Variants, SoftmaxValues,
                         testing::ValuesIn(kernels_of_program()), kNameOfVariant);
INSTANTIATE_TEST_SUITE_P(Variants, ForwardSoftmaxValues,
                         testing::ValuesIn(forward_variants()), kNameOfVariant);

template <typename T>
I64 first_visible(const Problem<T>& problem, I64 row) {
  I64 j = 0;
  while (!problem.visible(row, j)) {
    ++j;
  }
  return j;
}

/// `special` goes into the first visible element of row 1.
template <typename T>
void expect_row_of_nan(const Variant& variant, I64 cols, float special) {
  const Shape shape{.sq = 4, .cols = cols};
  Problem<T> problem(variant, shape, {.scale = 1.0F});
  problem.in(1, first_visible(problem, 1)) = T::from(special);
  const Tensor<T> out = problem.run();
  for (I64 i = 0; i < shape.sq * cols; ++i) {
    const double value = out.data()[i].value();
    if (!problem.visible(i / cols, i % cols)) {
      EXPECT_EQ(value, 0) << i;
    } else if (i / cols != 1) {
      EXPECT_TRUE(std::isfinite(value)) << i;
    } else {
      // The gradient of an infinite dy may be infinite itself; where y is 0 it is 0.
      EXPECT_TRUE(variant.is_forward() ? std::isnan(value)
                                       : !std::isfinite(value) || value == 0)
          << i << " is " << value;
    }
  }
}

TEST_P(SoftmaxValues, PassNaNOnAndKeepMaskedElementsZero) {
  for (const I64 cols : {32, 31}) {
    for (const float special : {kNaN, kInfinity}) {
      with_type(GetParam().param("dtype"),
                [&]<typename T>() { expect_row_of_nan<T>(GetParam(), cols, special); });
    }
  }
}

/// Of the lowest value a row is uniform; of -inf it is as if it were masked; either
/// loses to a 2.
template <typename T>
void expect_fill(const Variant& variant, I64 cols, float fill, bool is_masked) {
  Problem<T> problem(variant, {.sq = 1, .cols = cols}, {.scale = 1.0F});
  I64 visible = 0;
  for (I64 j = 0; j < cols; ++j) {
    problem.in(0, j) = T::from(fill);
    visible += problem.visible(0, j) ? 1 : 0;
  }
  ASSERT_GT(visible, 1);
  const I64 at = first_visible(problem, 0);
  EXPECT_NEAR(problem.run().data()[at].value(),
              is_masked ? problem.masked_row() : 1 / static_cast<double>(visible),
              0x1p-9);
  problem.in(0, at) = T::from(2.0F);
  const Tensor<T> out = problem.run();
  for (I64 j = 0; j < cols; ++j) {
    EXPECT_EQ(out.data()[j].value(), j == at ? 1 : 0) << j;
  }
}

TEST_P(ForwardSoftmaxValues, TakeMinusInfinityAsMaskedAndTheLowestNumberAsAValue) {
  for (const I64 cols : {8, 7}) {
    with_type(GetParam().param("dtype"), [&]<typename T>() {
      expect_fill<T>(GetParam(), cols, -kInfinity, true);
      expect_fill<T>(GetParam(), cols, T::kLowest, false);
    });
  }
}

template <typename T>
void expect_masked_input_ignored(const Variant& variant) {
  const Shape shape{.sq = 6, .cols = 32};
  Problem<T> problem(variant, shape, {.scale = 1.0F});
  const Tensor<T> clean = problem.run();
  for (I64 i = 0; i < shape.sq * shape.cols; ++i) {
    if (!problem.visible(i / shape.cols, i % shape.cols)) {
      problem.in(i / shape.cols, i % shape.cols) =
          T::from(i % 2 == 0 ? kNaN : kInfinity);
    }
  }
  EXPECT_TRUE(same_bits(clean, problem.run()));
}

TEST_P(SoftmaxValues, AreIgnoredInMaskedElements) {
  with_type(GetParam().param("dtype"),
            [&]<typename T>() { expect_masked_input_ignored<T>(GetParam()); });
}

}  // namespace
}  // namespace kiln::softmax_test
