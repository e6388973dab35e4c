// What holds for a softmax whatever the numbers are: sums, shifts, and a gradient that
// is one. None of it needs a bound of the reference's.

#include <gtest/gtest.h>

#include "tests/integration/softmax/problem.h"

namespace kiln::softmax_test {
namespace {

class ForwardSoftmaxProperties : public testing::TestWithParam<Variant> {};
class SoftmaxGradients : public testing::TestWithParam<Variant> {};
class ForwardCausalSoftmax : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Variants, ForwardSoftmaxProperties,
                         testing::ValuesIn(forward_variants()), kNameOfVariant);
INSTANTIATE_TEST_SUITE_P(Variants, SoftmaxGradients,
                         testing::ValuesIn(backward_variants()), kNameOfVariant);
INSTANTIATE_TEST_SUITE_P(Variants, ForwardCausalSoftmax,
                         testing::ValuesIn(forward_variants(Kind::kCausal)),
                         kNameOfVariant);

/// Each element may be off by its own bound; no more than that is lost in the sum.
template <typename T>
void expect_rows_that_sum_to_one(const Variant& variant, I64 cols) {
  const Shape shape{.sq = 6, .cols = cols};
  const Problem<T> problem(variant, shape, {.scale = 1.0F});
  const Tensor<T> y = problem.run();
  for (I64 row = 0; row < shape.rows(); ++row) {
    double sum = 0;
    double bound = 0;
    bool empty = true;
    for (I64 j = 0; j < cols; ++j) {
      const double value = y.data()[row * cols + j].value();
      sum += value;
      bound += error_bound<T>(true) * ulp<T>(value);
      empty = empty && !problem.visible(row, j);
      EXPECT_TRUE(problem.visible(row, j) || value == 0 || is_uniform(variant))
          << row << "," << j;
    }
    if (empty && !is_uniform(variant))
      EXPECT_EQ(sum, 0) << "row " << row;
    else
      EXPECT_NEAR(sum, 1, bound) << "row " << row;
  }
}

TEST_P(ForwardSoftmaxProperties, RowsSumToOneOrAreAllMaskedAndZero) {
  for (const I64 cols : {1, 2, 3, 31, 32, 33, 100, 1000, 4096, 20000}) {
    if (cols <= max_cols(GetParam())) {
      with_type(GetParam().param("dtype"), [&]<typename T>() {
        expect_rows_that_sum_to_one<T>(GetParam(), cols);
      });
    }
  }
}

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

/// The forward kernel's y, as it is stored, through the backward kernel: what rounding
/// y and dx costs, and no more, lies between it and the change of the loss.
template <typename T>
void expect_gradient_of_the_loss(const Variant& backward, I64 cols) {
  const float scale = 0.7F;
  const Shape shape{.batch = 2, .sq = 4, .cols = cols};
  std::string name = backward.kernel();
  name.replace(name.size() - 3, 3, "fwd");
  Problem<T> forward_problem(variant_like(backward, name), shape, {.scale = scale});
  Problem<T> backward_problem(backward, shape, {.scale = scale});
  const Tensor<T> y = forward_problem.run();
  std::copy_n(y.data(), y.size(), backward_problem.y().data());
  const Tensor<T> dx = backward_problem.run();
  const double relative = std::ldexp(sizeof(T) == 2 ? 2.0 : 8.0, 1 - T::kDigits);
  for (I64 row = 0; row < shape.rows(); ++row) {
    const auto x = values(forward_problem.in().data() + row * cols, cols);
    const auto dy = values(backward_problem.in().data() + row * cols, cols);
    const auto visible = [&](I64 j) { return forward_problem.visible(row, j); };
    const auto change = finite_differences(x, dy, scale, visible);
    const auto terms = gradient(softmax(x, scale, visible), dy, scale).magnitude;
    double all_dy = 0;  // what a y below the normal numbers may be off by goes times it
    for (const double value : dy) {
      all_dy += std::fabs(value);
    }
    for (I64 j = 0; j < cols; ++j) {
      const auto at = static_cast<std::size_t>(j);
      EXPECT_NEAR(dx.data()[row * cols + j].value(), change[at],
                  relative * terms[at] + ulp<T>(0) * (1 + all_dy) + 1e-8)
          << "row " << row << " column " << j;
    }
  }
}

TEST_P(SoftmaxGradients, FollowTheChangeOfTheLoss) {
  for (const I64 cols : {1, 2, 17, 32}) {
    with_type(GetParam().param("dtype"),
              [&]<typename T>() { expect_gradient_of_the_loss<T>(GetParam(), cols); });
  }
}

template <typename T>
void expect_same_as_plain_rows(const Variant& causal, const Shape& shape) {
  Problem<T> problem(causal, shape, {.scale = 1.0F});
  const Tensor<T> out = problem.run();
  std::string name = causal.kernel();
  name.replace(name.find("_upper_triang_masked"), sizeof("_upper_triang_masked") - 1,
               "");
  for (I64 row = 0; row < shape.rows(); ++row) {
    const I64 visible =
        std::clamp<I64>(row % shape.sq + 1 + shape.cols - shape.sq, 0, shape.cols);
    Problem<T> plain(variant_like(causal, name), {.sq = 1, .cols = visible},
                     {.scale = 1.0F});
    for (I64 j = 0; j < visible; ++j) {
      plain.in(0, j) = problem.in(row, j);
      plain.y()[static_cast<std::size_t>(j)] =
          problem.y()[static_cast<std::size_t>(row * shape.cols + j)];
    }
    const Tensor<T> expected = plain.run();
    for (I64 j = 0; j < shape.cols; ++j) {
      const double want =
          j < visible ? expected[static_cast<std::size_t>(j)].value() : 0.0;
      EXPECT_NEAR(out.data()[row * shape.cols + j].value(), want,
                  j < visible ? 2 * error_bound<T>(true) * ulp<T>(want) : 0)
          << "row " << row << " column " << j;
    }
  }
}

TEST_P(ForwardCausalSoftmax, IsThePlainOneOfTheVisibleColumns) {
  for (const Shape& shape :
       {Shape{.batch = 2, .sq = 7, .cols = 7}, Shape{.sq = 5, .cols = 24},
        Shape{.sq = 24, .cols = 5}, Shape{.sq = 32, .cols = 32}}) {
    with_type(GetParam().param("dtype"),
              [&]<typename T>() { expect_same_as_plain_rows<T>(GetParam(), shape); });
  }
}

}  // namespace
}  // namespace kiln::softmax_test
