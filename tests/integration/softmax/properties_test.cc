// A shift of a row, and that the reference's gradient is one.

#include <gtest/gtest.h>

#include "tests/integration/softmax/problem.h"

namespace kiln::softmax_test {
namespace {

class ForwardSoftmaxProperties : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Variants, ForwardSoftmaxProperties,
                         testing::ValuesIn(forward_variants()), kNameOfVariant);

/// Eighths up to 4, and the same 8 higher: exact in every type, so the differences that
/// the exponents are made of are equal.
template <typename T>
void expect_shift_invariance(const Variant& variant, I64 cols) {
  const Shape shape{.sq = 3, .cols = cols};
  Problem<T> problem(variant, shape, {.scale = 0.7F});
  for (I64 i = 0; i < shape.rows() * cols; ++i) {
    problem.in(i / cols, i % cols) = T::from(static_cast<float>(i * 37 % 64 - 32) / 8);
  }
  const Tensor<T> low = problem.run();
  for (I64 i = 0; i < shape.rows() * cols; ++i) {
    T& x = problem.in(i / cols, i % cols);
    x = T::from(static_cast<float>(x.value()) + 8);
  }
  EXPECT_TRUE(same_bits(low, problem.run())) << cols << " columns";
}

TEST_P(ForwardSoftmaxProperties, AnExactShiftOfARowChangesNoBit) {
  for (const I64 cols : {31, 32, 500, 9000}) {
    if (cols <= max_cols(GetParam())) {
      with_type(GetParam().param("dtype"),
                [&]<typename T>() { expect_shift_invariance<T>(GetParam(), cols); });
    }
  }
}

TEST(SoftmaxReference, ItsGradientIsTheOneOfFiniteDifferences) {
  std::mt19937 random(3);  // NOLINT(cert-msc51-cpp): the same every time
  std::normal_distribution<double> normal;
  for (const std::size_t cols : {1U, 2U, 7U, 32U}) {
    std::vector<double> x(cols);
    std::vector<double> dy(cols);
    for (std::size_t j = 0; j < cols; ++j) {
      x[j] = normal(random);
      dy[j] = normal(random);
    }
    const auto visible = [](std::int64_t j) { return j % 3 != 2; };
    const auto exact = gradient(softmax(x, 0.7, visible), dy, 0.7);
    const auto measured = finite_differences(x, dy, 0.7, visible);
    for (std::size_t j = 0; j < cols; ++j) {
      EXPECT_NEAR(exact.dx[j], measured[j], 1e-9);
    }
  }
}

}  // namespace
}  // namespace kiln::softmax_test
