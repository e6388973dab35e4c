// What holds for cross-entropy whatever the logits.

#include "ops/plans.h"
#include "tests/integration/cross_entropy/problem.h"
#include "tests/support/kernels/run_plan.h"
#include "tests/support/tensors/finite_differences.h"

namespace kiln::cross_entropy_test {
namespace {

template <typename T>
class CrossEntropyProperties : public testing::Test {};
TYPED_TEST_SUITE(CrossEntropyProperties, ElementTypes, TypeNames);

/// Multiples of 1/8 from 0 to 16, shifted: exact in every type up to 32.
template <typename T>
void fill_with_eighths(Problem<T>& problem, float shift) {
  std::mt19937 random(11);  // NOLINT(cert-msc51-cpp): the same every time
  for (I64 row = 0; row < problem.setting().rows; ++row) {
    for (I64 j = 0; j < problem.setting().vocabulary; ++j) {
      problem.logit(row, j) = T::from(static_cast<float>(random() % 128) / 8 + shift);
    }
  }
}

// Out of the definition alone: how the loss, taken term by term, changes with a logit.
TYPED_TEST(CrossEntropyProperties, TheGradientIsTheDifferenceQuotientOfTheLoss) {
  for (const float smoothing : {0.0F, 0.3F, 1.0F}) {
    Problem<TypeParam> problem({.vocabulary = 19, .smoothing = smoothing, .scale = 3});
    const auto out = problem.fused();
    for (I64 row = 0; row < problem.setting().rows; ++row) {
      const auto x = test::values(&problem.logit(row, 0), 19);
      const I64 target = problem.target(row);
      EXPECT_NEAR(out.loss[static_cast<std::size_t>(row)].value(),
                  loss_of(x, target, smoothing), 1e-5);
      const auto slopes = test::finite_differences(
          x, 1e-5, [&](const auto& at) { return loss_of(at, target, smoothing); });
      for (std::size_t j = 0; j < x.size(); ++j) {
        const double want = 3 * slopes[j];
        const double dx = problem.gradient_row(out, row)[j].value();
        EXPECT_NEAR(dx, want, 0.51 * test::ulp<TypeParam>(want) + 2e-6)
            << "column " << j;
      }
    }
  }
}

TYPED_TEST(CrossEntropyProperties, AShiftThatIsExactChangesNothingButLse) {
  for (const I64 vocabulary : {24, 3001}) {
    const Setting setting{.vocabulary = vocabulary, .smoothing = 0.1F};
    Problem<TypeParam> problem(setting);
    fill_with_eighths(problem, 0);
    const auto out = problem.fused();
    Problem<TypeParam> shifted(setting);
    fill_with_eighths(shifted, 16);
    const auto again = shifted.fused();
    EXPECT_TRUE(same_bits(out.loss, again.loss));
    EXPECT_TRUE(same_bits(out.dlogits, again.dlogits));
    EXPECT_FLOAT_EQ(out.lse[0].bits + 16, again.lse[0].bits);
  }
}

// And so a row of one column says nothing: its loss is 0, whatever is in it.
TYPED_TEST(CrossEntropyProperties, AVocabularyOfOneHasLossAndGradientZero) {
  for (const float smoothing : {0.0F, 0.1F, 0.3F, 0.7F, 1.0F}) {
    Problem<TypeParam> problem(
        {.vocabulary = 1, .smoothing = smoothing, .scale = 0.3F, .row_scale = true});
    const auto out = problem.fused();
    for (std::size_t row = 0; row < 3; ++row) {
      EXPECT_EQ(out.loss[row].bits, 0);
      EXPECT_EQ(out.dlogits[row].value(), 0);
    }
  }
}

TYPED_TEST(CrossEntropyProperties, TheBitsAreTheSameInEveryOrderOfTheThreads) {
  for (const I64 vocabulary : {5, 300, 9000, 40000}) {
    Setting setting{.vocabulary = vocabulary, .smoothing = 0.1F};
    const auto first = Problem<TypeParam>(setting).forward_and_backward();
    for (const Order order :
         {Order::kAscending, Order::kDescending, Order::kShuffled}) {
      setting.order = order;
      const auto fused = Problem<TypeParam>(setting).fused();
      EXPECT_TRUE(same_bits(fused.loss, first.loss)) << vocabulary;
      EXPECT_TRUE(same_bits(fused.dlogits, first.dlogits)) << vocabulary;
      const auto separate = Problem<TypeParam>(setting).forward_and_backward();
      EXPECT_TRUE(same_bits(separate.saved, first.saved)) << vocabulary;
      EXPECT_TRUE(same_bits(separate.dlogits, first.dlogits)) << vocabulary;
    }
  }
}

/// The launch on fewer blocks than there are rows.
TYPED_TEST(CrossEntropyProperties, AnyGridComputesAllRows) {
  const Setting setting{.rows = 11, .vocabulary = 300};
  Problem<TypeParam> problem(setting);
  Output<TypeParam> out(setting);
  auto plan =
      ops::plan(problem.fused_args(out), kiln_cpu::planned_device()).value().at(0);
  const auto* const found =
      kiln_cpu::find_variant(plan, kiln_cpu::kernels_of_program());
  ASSERT_NE(found, nullptr);
  auto geometry = found->geometry(plan.extents).value();
  EXPECT_EQ(geometry.grid[0], 11U);
  geometry.grid[0] = 3;
  ASSERT_TRUE(found->launch_with(geometry, {}, plan.arguments.addresses(),
                                 plan.arguments.sizes_bytes()));
  std::ignore = problem.check(out);
}

}  // namespace
}  // namespace kiln::cross_entropy_test
