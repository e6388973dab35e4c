// Rows with infinities and NaN, the largest and the smallest logits: what the header
// says of them.

#include "tests/integration/cross_entropy/problem.h"

namespace kiln::cross_entropy_test {
namespace {

template <typename T>
class CrossEntropySpecialValues : public testing::Test {
 protected:
  /// Row 0 of one problem, whose target is column 5; once with the special column among
  /// those that are vectors and once among the others.
  template <typename Check>
  static void with_row(float value, float smoothing, Check check) {
    for (const I64 column : {0, 20, 49, 50}) {
      Problem<T> problem({.rows = 2, .vocabulary = 51, .smoothing = smoothing});
      problem.set_target(0, 5);
      problem.logit(0, column) = T::from(value);
      const Output<T> fused = problem.fused();
      check(problem, fused, column);
      const Output<T> separate = problem.forward_and_backward();
      check(problem, separate, column);
      EXPECT_FALSE(std::isnan(fused.loss[1].bits)) << "the next row";
    }
  }
  static void expect_all_nan(const Problem<T>& problem, const Output<T>& out) {
    EXPECT_TRUE(std::isnan(out.loss[0].bits));
    const T* const dx = problem.gradient_row(out, 0);
    EXPECT_TRUE(
        std::all_of(dx, dx + 51, [](T each) { return std::isnan(each.value()); }));
  }
};
TYPED_TEST_SUITE(CrossEntropySpecialValues, ElementTypes, TypeNames);

TYPED_TEST(CrossEntropySpecialValues, NaNMakesItsRowNaN) {
  this->with_row(kNaN, 0, [](auto& problem, const auto& out, I64) {
    TestFixture::expect_all_nan(problem, out);
  });
}

TYPED_TEST(CrossEntropySpecialValues, InfinityMakesItsRowNaN) {
  this->with_row(kInfinity, 0, [](auto& problem, const auto& out, I64) {
    TestFixture::expect_all_nan(problem, out);
  });
}

TYPED_TEST(CrossEntropySpecialValues, MinusInfinityHasNoProbability) {
  this->with_row(-kInfinity, 0, [](auto& problem, const auto& out, I64 column) {
    EXPECT_TRUE(std::isfinite(out.loss[0].bits));
    EXPECT_EQ(problem.gradient_row(out, 0)[column].value(), 0);
    std::ignore = problem.check(out);
  });
}

TYPED_TEST(CrossEntropySpecialValues, SmoothingGivesMinusInfinityAnInfiniteLoss) {
  this->with_row(-kInfinity, 0.1F, [](auto& problem, const auto& out, I64 column) {
    EXPECT_EQ(out.loss[0].bits, kInfinity);
    const double dx = problem.gradient_row(out, 0)[column].value();
    EXPECT_NEAR(dx, -0.1 / 51, 1e-5);
  });
}

TYPED_TEST(CrossEntropySpecialValues, ATargetOfMinusInfinityHasAnInfiniteLoss) {
  Problem<TypeParam> problem({.rows = 1, .vocabulary = 20});
  problem.set_target(0, 5);
  problem.logit(0, 5) = TypeParam::from(-kInfinity);
  const auto out = problem.fused();
  EXPECT_EQ(out.loss[0].bits, kInfinity);
  EXPECT_EQ(out.dlogits[5].value(), -1);
}

TYPED_TEST(CrossEntropySpecialValues, MinusInfinityAloneMakesItsRowNaN) {
  for (const float smoothing : {0.0F, 0.1F, 1.0F}) {
    for (const I64 vocabulary : {1, 51, 3000}) {
      Problem<TypeParam> problem(
          {.rows = 1, .vocabulary = vocabulary, .smoothing = smoothing});
      for (I64 j = 0; j < vocabulary; ++j)
        problem.logit(0, j) = TypeParam::from(-kInfinity);
      const auto fused = problem.fused();
      const auto separate = problem.forward_and_backward();
      for (const auto* const out : {&fused, &separate}) {
        EXPECT_TRUE(std::isnan(out->loss[0].bits));
        for (I64 j = 0; j < vocabulary; ++j)
          ASSERT_TRUE(std::isnan(out->dlogits.data()[j].value())) << j;
      }
    }
  }
}

// A thread that has seen -inf alone has no largest logit yet.
TYPED_TEST(CrossEntropySpecialValues, OneFiniteLogitIsACertainty) {
  for (const I64 finite : {0, 8, 2999}) {
    Problem<TypeParam> problem({.rows = 1, .vocabulary = 3000});
    for (I64 j = 0; j < 3000; ++j)
      problem.logit(0, j) = TypeParam::from(j == finite ? -7.0F : -kInfinity);
    problem.set_target(0, finite);
    const auto out = problem.fused();
    EXPECT_EQ(out.loss[0].bits, 0);
    EXPECT_EQ(out.lse[0].bits, -7);
    for (I64 j = 0; j < 3000; ++j) ASSERT_EQ(out.dlogits.data()[j].value(), 0) << j;
  }
}

TYPED_TEST(CrossEntropySpecialValues, TheLargestAndTheLowestNumbersAreLogitsToo) {
  Problem<TypeParam> problem({.rows = 1, .vocabulary = 40});
  problem.set_target(0, 5);
  problem.logit(0, 5) = TypeParam::from(-TypeParam::kLowest / 4);
  problem.logit(0, 6) = TypeParam::from(TypeParam::kLowest / 4);
  const auto out = problem.fused();
  EXPECT_EQ(out.loss[0].bits, 0);
  EXPECT_EQ(out.dlogits[5].value(), 0);
  EXPECT_EQ(out.dlogits[6].value(), 0);
}

}  // namespace
}  // namespace kiln::cross_entropy_test
