// What existing kernels do wrong, and these do not: the defect is told above each test.

#include "tests/integration/cross_entropy/problem.h"

namespace kiln::cross_entropy_test {
namespace {

template <typename T>
class CrossEntropyGuarantees : public testing::Test {};
TYPED_TEST_SUITE(CrossEntropyGuarantees, ElementTypes, TypeNames);

template <typename T>
void fill(Problem<T>& problem, I64 row, float value) {
  for (I64 j = 0; j < problem.setting().vocabulary; ++j)
    problem.logit(row, j) = T::from(value);
}

template <typename T>
bool all_of_row(const Problem<T>& problem, const Output<T>& out, I64 row, I64 cols,
                bool (*is)(double)) {
  const T* const got = problem.gradient_row(out, row);
  return std::all_of(got, got + cols, [&](const T& dx) { return is(dx.value()); });
}
bool is_zero(double value) {
  return value == 0;
}
bool is_nan(double value) {
  return std::isnan(value);
}

// Guards against a loss that is computed, or stored, in the logits' type: of a bf16 one
// 8 bits remain.
TYPED_TEST(CrossEntropyGuarantees, TheLossHasTheBitsOfAFloatWhateverTheLogitsAre) {
  Problem<TypeParam> problem({.vocabulary = 1000});
  for (const I64 row : {0, 1, 2}) fill(problem, row, 0.5F);
  const auto out = problem.fused();
  EXPECT_NEAR(out.loss[0].value(), std::log(1000.0), 2e-6);
  EXPECT_NEAR(out.lse[0].value(), std::log(1000.0) + 0.5, 2e-6);
}

// Guards against exponentials of the logits themselves, which overflow, and against a
// loss taken as a difference of two large numbers, of which few bits remain.
TYPED_TEST(CrossEntropyGuarantees, LogitsAroundTenThousandCostNoAccuracy) {
  for (const float offset : {1e4F, -1e4F}) {
    for (const I64 vocabulary : {40, 5000, 40000}) {
      Problem<TypeParam> problem({.vocabulary = vocabulary, .smoothing = 0.1F});
      for (I64 row = 0; row < 3; ++row) {
        for (I64 j = 0; j < vocabulary; ++j) {
          problem.logit(row, j) = TypeParam::from(
              static_cast<float>(problem.logit(row, j).value()) + offset);
        }
      }
      std::ignore = problem.run_and_check();
      std::ignore = problem.check(problem.forward_and_backward());
    }
  }
}

// Guards against a forward pass that hands lse on in one float: softmax(x) would be off
// by its rounding, a thousandth here.
TYPED_TEST(CrossEntropyGuarantees, WhatIsSavedIsExactForLargeLogits) {
  Problem<TypeParam> problem({.rows = 1, .vocabulary = 3, .scale = 1});
  for (const I64 j : {0, 1, 2}) problem.logit(0, j) = TypeParam::from(12288.0F);
  problem.set_target(0, 1);
  const auto out = problem.forward_and_backward();
  EXPECT_EQ(out.saved[0].bits, 12288.0F);
  EXPECT_EQ(out.saved[1].bits, 3.0F);
  std::ignore = problem.check(out);
}

// Guards against an ignored row that is skipped, so that what was in memory stays there
// as its gradient, and against one that is read all the same: the memory of the last
// row is not even there.
TYPED_TEST(CrossEntropyGuarantees, AnIgnoredRowIsWrittenAndNotRead) {
  for (const I64 vocabulary : {1, 24, 3001}) {
    const Setting setting{.rows = 2, .vocabulary = vocabulary, .smoothing = 0.1F};
    Problem<TypeParam> of_two(setting);
    Tensor<TypeParam> first_row("logits", static_cast<std::size_t>(vocabulary));
    std::copy_n(&of_two.logit(0, 0), vocabulary, first_row.data());
    of_two.set_target(1, -100);
    Output<TypeParam> out(setting);
    auto fused = of_two.fused_args(out);
    fused.logits = first_row.data();
    of_two.run_unchecked(fused);
    std::ignore = of_two.check(out);
    auto forward = of_two.forward_args(out);
    forward.logits = first_row.data();
    of_two.run_unchecked(forward);
    EXPECT_EQ(out.saved[2].bits, 0);
    EXPECT_EQ(out.saved[3].bits, 0);
    Output<TypeParam> again(setting);
    auto backward = of_two.backward_args(again);
    backward.logits = first_row.data();
    backward.saved = &out.saved.data()->bits;
    of_two.run_unchecked(backward);
    EXPECT_TRUE(same_bits(out.dlogits, again.dlogits));
  }
}

TYPED_TEST(CrossEntropyGuarantees, AnIgnoredIndexMayBeAColumn) {
  Problem<TypeParam> problem({.rows = 4, .vocabulary = 9, .ignored_index = 2});
  problem.set_target(0, 2);
  const auto out = problem.fused();
  EXPECT_EQ(out.loss[0].bits, 0);
  EXPECT_TRUE(all_of_row(problem, out, 0, 9, is_zero));
  std::ignore = problem.check(out);
}

// Guards against a target that is no column and is used as one, which reads the memory
// of somebody else, and against one that is clamped or left out in silence.
TYPED_TEST(CrossEntropyGuarantees, ATargetThatIsNoColumnMakesItsRowNaN) {
  constexpr I64 kMin = std::numeric_limits<I64>::min();
  constexpr I64 kMax = std::numeric_limits<I64>::max();
  for (const I64 wrong : {I64{-1}, I64{9}, I64{12}, I64{1} << 31, kMin, kMax}) {
    Problem<TypeParam> problem({.vocabulary = 9, .padded_vocabulary = 12});
    problem.set_target(1, wrong);
    const auto fused = problem.fused();
    const auto separate = problem.forward_and_backward();
    for (const auto* const out : {&fused, &separate}) {
      EXPECT_TRUE(std::isnan(out->loss[1].bits)) << wrong;
      EXPECT_TRUE(std::isnan(out->lse[1].bits)) << wrong;
      EXPECT_TRUE(all_of_row(problem, *out, 1, 9, is_nan)) << wrong;
      EXPECT_FALSE(std::isnan(out->loss[0].bits));
      EXPECT_FALSE(all_of_row(problem, *out, 2, 9, is_nan));
    }
  }
}

// Guards against targets that are cut to 32 bits: beyond 2^31 one becomes a column.
TYPED_TEST(CrossEntropyGuarantees, ATargetOf64BitsIsNotCutTo32) {
  Problem<TypeParam> problem({.vocabulary = 9});
  problem.set_target(0, (I64{1} << 32) + 5);
  problem.set_target(2, -100 + (I64{1} << 32));
  const auto out = problem.fused();
  EXPECT_TRUE(std::isnan(out.loss[0].bits));
  EXPECT_TRUE(std::isnan(out.loss[2].bits));
}

// Guards against a mean of the smoothing over the padded vocabulary, and sums that take
// the padding along: NaN is there.
TYPED_TEST(CrossEntropyGuarantees, ColumnsBeyondTheVocabularyTakeNoPart) {
  Problem<TypeParam> problem(
      {.vocabulary = 1000, .padded_vocabulary = 1024, .smoothing = 0.5F});
  const auto out = problem.fused();
  std::ignore = problem.check(out);
  // A uniform gradient of 1/1000 each, and not 1/1024: told apart in every type.
  for (const I64 row : {0, 1, 2}) fill(problem, row, -1.0F);
  const auto uniform = problem.fused();
  std::ignore = problem.check(uniform);
  EXPECT_TRUE(all_of_row(problem, uniform, 0, 1,
                         [](double dx) {
                           return std::fabs(dx - (1.0 / 1000 - 0.5 / 1000)) <
                                  0.003 / 1000;
                         }) ||
              problem.target(0) == 0);
}

// Guards against a scale that is rounded to the logits' type.
TYPED_TEST(CrossEntropyGuarantees, TheScaleIsAFloat) {
  const float scale = 1.0F + std::ldexp(0.99F, -TypeParam::kDigits);
  Problem<TypeParam> problem({.vocabulary = 300, .scale = scale});
  std::ignore = problem.run_and_check();
}

TYPED_TEST(CrossEntropyGuarantees, WhatIsOptionalMayBeNull) {
  const Setting setting{.rows = 5, .vocabulary = 20};
  Problem<TypeParam> problem(setting);
  const auto all = problem.forward_and_backward();
  Output<TypeParam> out(setting);
  auto fused = problem.fused_args(out);
  fused.lse = nullptr;
  problem.run_unchecked(fused);
  EXPECT_TRUE(same_bits(out.loss, all.loss));
  EXPECT_TRUE(same_bits(out.dlogits, all.dlogits));
  Output<TypeParam> again(setting);
  auto forward = problem.forward_args(again);
  forward.lse = nullptr;
  forward.saved = nullptr;
  problem.run_unchecked(forward);
  EXPECT_TRUE(same_bits(again.loss, all.loss));
}

}  // namespace
}  // namespace kiln::cross_entropy_test
