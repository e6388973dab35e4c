// Tails, infinities and NaN.

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/integration/activation/kernels.h"
#include "tests/integration/activation/problem.h"

namespace kiln::activation_test {
namespace {

class ActivationTails : public testing::TestWithParam<Unit> {};

INSTANTIATE_TEST_SUITE_P(Units, ActivationTails, testing::ValuesIn(all_units()),
                         kNameOf);

/// Inputs `values`, each in a row of its own with all else 1 and no bias.
template <typename T>
Problem<T> problem_of(std::span<const float> values) {
  Problem<T> problem(ActivationTails::GetParam(),
                     {.rows = static_cast<I64>(values.size()), .cols = 9}, {});
  for (I64 row = 0; row < problem.shape().rows; ++row) {
    for (I64 col = 0; col < 9; ++col) {
      problem.in(0, row, col) = T::from(values[static_cast<std::size_t>(row)]);
      if (ActivationTails::GetParam().gated)
        problem.in(1, row, col) = T::from(1);
    }
  }
  problem.bias().fill(0);
  problem.weight().fill(1);
  problem.dy().fill(1);
  return problem;
}

// Guards against a derivative of a factor that grows, inf, and one that vanishes, 0:
// their product is NaN from |u| of some tens on, in backward kernels that take the
// square or cube of u as it is.
TEST_P(ActivationTails, OfLargeInputsAreFiniteAndRight) {
  constexpr std::array kValues{8.0F,   -8.0F,   10.5F,  -10.5F, 13.0F, -13.0F,
                               15.0F,  -15.0F,  50.0F,  -50.0F, 88.0F, -88.0F,
                               100.0F, -100.0F, 200.0F, -200.0F};
  with_type(GetParam().dtype, [&]<typename T>() {
    std::ignore = problem_of<T>(kValues).run_and_check();
  });
}

TEST_P(ActivationTails, OfTheLargestInputsAreTheirLimits) {
  with_type(GetParam().dtype, []<typename T>() {
    if (GetParam().act == Act::kSquaredRelu || GetParam().clamped)
      return;
    const std::array values{-T::kLowest, T::kLowest, kInfinity, -kInfinity};
    Problem<T> problem = problem_of<T>(values);
    const Results<T> results = problem.run();
    for (std::size_t row = 0; row < values.size(); ++row) {
      const bool above = values[row] > 0;
      const auto at = static_cast<I64>(row);
      EXPECT_EQ(results.y[row * 9].value(), above ? T::from(values[row]).value() : 0);
      EXPECT_EQ(problem.gradient(results, 0, at, 0), above ? 1 : 0) << values[row];
    }
  });
}

// A float's value is as good in the tail as anywhere, down to 2^-125: a formula of 1 +
// tanh or 1 + erf has no digit left below u = -5.
TEST_P(ActivationTails, KeepTheirDigitsForVeryNegativeInputs) {
  if (GetParam().dtype != "f32" || GetParam().has_bias)
    return;
  std::vector<float> values;
  for (int i = 17; i < 75; ++i) values.push_back(-0.173F * static_cast<float>(i));
  EXPECT_LE(problem_of<F32>(values).run_and_check(), 4.5);
}

TEST_P(ActivationTails, NaNStaysNaN) {
  with_type(GetParam().dtype, []<typename T>() {
    constexpr std::array kValues{kNaN, 1.0F};
    const Results<T> results = problem_of<T>(kValues).run();
    EXPECT_TRUE(std::isnan(results.y[0].value()));
    EXPECT_FALSE(std::isnan(results.y[9].value()));
  });
}

}  // namespace
}  // namespace kiln::activation_test
