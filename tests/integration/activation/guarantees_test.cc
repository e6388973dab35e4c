// What existing activation kernels got wrong, each as a test of what holds here. The
// defect is told above its test. That of sizes beyond 32 bits is in
// large_tensors_test.cc, those of tails in special_values_test.cc.

#include <gtest/gtest.h>

#include "tests/integration/activation/kernels.h"
#include "tests/integration/activation/problem.h"

namespace kiln::activation_test {
namespace {

const Shape kShape{.rows = 11, .cols = 40};

class ActivationGuarantees : public testing::TestWithParam<Unit> {
 protected:
  /// Whether the results of this unit would pass for those of `other`.
  static bool passes_for(const Unit& other) {
    return with_type(GetParam().dtype, [&]<typename T>() {
      Problem<T> problem(GetParam(), kShape, {});
      return problem.errors(problem.run(), other).are_small();
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Units, ActivationGuarantees, testing::ValuesIn(all_units()),
                         kNameOf);

// Guards against a fusion that computes the tanh form of GELU where the model was
// trained with erf: the results differ by more than their rounding, in every type.
TEST_P(ActivationGuarantees, NoFormOfGeluPassesForTheOther) {
  Unit other = GetParam();
  EXPECT_TRUE(passes_for(other));
  if (other.act == Act::kGeluTanh || other.act == Act::kGeluErf) {
    other.act = other.act == Act::kGeluTanh ? Act::kGeluErf : Act::kGeluTanh;
    EXPECT_FALSE(passes_for(other));
  }
}

// Guards against a tolerance so wide that a broken kernel passes: absolute ones of 1
// and of 10000 are in use for SwiGLU. Here the gate's sigmoid has the wrong sign.
TEST_P(ActivationGuarantees, AWrongSignOfTheSigmoidIsFound) {
  if (!GetParam().clamped)
    return;
  with_type(GetParam().dtype, []<typename T>() {
    Problem<T> problem(GetParam(), kShape, {});
    const Results<T> results = problem.run();
    problem.setting().limits.alpha = -problem.setting().limits.alpha;
    EXPECT_FALSE(problem.errors(results, GetParam()).are_small());
  });
}

// Guards against halves that are taken for each other, which a test with equal halves,
// or of shapes alone, lets pass.
TEST_P(ActivationGuarantees, TheGateIsTheFirstHalf) {
  if (!GetParam().gated)
    return;
  with_type(GetParam().dtype, []<typename T>() {
    for (const auto layout : {ops::GluLayout::kPacked, ops::GluLayout::kSplit}) {
      Problem<T> problem(GetParam(), kShape, {.layout = layout});
      const Results<T> results = problem.run();
      for (I64 row = 0; row < kShape.rows; ++row) {
        for (I64 col = 0; col < kShape.cols; ++col)
          std::swap(problem.in(0, row, col), problem.in(1, row, col));
      }
      EXPECT_FALSE(problem.errors(results, GetParam()).are_small());
    }
  });
}

// Guards against sqrt(2) written as 1.41421. A float shows the sixth digit.
TEST(GeluErf, TakesTheRootOfTwoInFull) {
  const auto error_with = [](double root) {
    Problem<F32> problem(unit("bias_gelu_erf_f32"), kShape, {});
    const Results<F32> results = problem.run();
    double worst = 0;
    for (I64 i = 0; i < kShape.rows * kShape.cols; ++i) {
      const double u = problem.in(0, i / kShape.cols, i % kShape.cols).value();
      const double want = u * 0.5 * std::erfc(-u / root);
      worst = std::max(
          worst,
          test::in_ulp<F32>(results.y[static_cast<std::size_t>(i)].value(), want, 0));
    }
    return worst;
  };
  EXPECT_LE(error_with(std::sqrt(2.0)), 4.5);
  EXPECT_GT(error_with(1.41421), 20);
}

// Guards against a bias gradient that is the sum of gradients already rounded: what
// rounding took from each would be missing.
TEST_P(ActivationGuarantees, TheBiasGradientIsSummedBeforeRounding) {
  if (!GetParam().has_bias || GetParam().dtype == "f32")
    return;
  with_type(GetParam().dtype, []<typename T>() {
    Problem<T> problem(GetParam(), {.rows = 13, .cols = 200}, {});
    Results<T> results = problem.run();
    EXPECT_TRUE(problem.errors(results, GetParam()).are_small());
    for (I64 i = 0; i < static_cast<I64>(results.dbias.size()); ++i) {
      double sum = 0;
      for (I64 row = 0; row < 13; ++row)
        sum += problem.gradient(results, static_cast<int>(i / 200), row, i % 200);
      results.dbias[static_cast<std::size_t>(i)] = T::from(static_cast<float>(sum));
    }
    EXPECT_FALSE(problem.errors(results, GetParam()).are_small());
  });
}

}  // namespace
}  // namespace kiln::activation_test
