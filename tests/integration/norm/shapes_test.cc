// The norm operations against double: shapes at every edge, alignments, schedules. What
// results may be off by says reference.h.

#include <fmt/format.h>

#include <array>

#include "tests/integration/norm/problem.h"

namespace kiln::norm_test {
namespace {

class NormShapes : public testing::TestWithParam<Configuration> {
 protected:
  /// Both passes, of from_output the backward pass; adds to what report() says.
  void check(const Setting& setting) {
    SCOPED_TRACE(testing::Message() << setting);
    with_types(GetParam(), [&]<typename T, typename W>() {
      const Problem<T, W> problem(GetParam(), setting);
      const Errors forward =
          GetParam().from_output ? Errors() : problem.errors(problem.forward());
      EXPECT_LE(forward.excess, kStoreUlp) << "forward";
      const Errors backward = problem.errors(problem.backward());
      EXPECT_LE(backward.excess, kStoreUlp) << "backward";
      worst_forward_ = std::max(worst_forward_, forward.all);
      worst_excess_ = std::max({worst_excess_, forward.excess, backward.excess});
    });
  }
  void report() const {
    RecordProperty("worst_ulp", std::to_string(worst_forward_));
    fmt::print("forward {:.3f} ulp, both beyond their bounds {:.3f} ulp\n",
               worst_forward_, worst_excess_);
  }
  static std::array<I64, 2> two_lengths() {
    return {odd_length(GetParam()), aligned_length(GetParam())};
  }

 private:
  double worst_forward_ = 0;
  double worst_excess_ = 0;
};

/// Of every kernel.
class NormRows : public NormShapes {};

/// Forward passes too.
class NormPasses : public NormShapes {};

INSTANTIATE_TEST_SUITE_P(All, NormShapes, testing::ValuesIn(configurations()), kNameOf);
INSTANTIATE_TEST_SUITE_P(Other, NormShapes, testing::ValuesIn(other_forms()), kNameOf);
INSTANTIATE_TEST_SUITE_P(All, NormPasses, testing::ValuesIn(configurations()), kNameOf);
INSTANTIATE_TEST_SUITE_P(All, NormRows, testing::ValuesIn(all_configurations()),
                         kNameOf);

TEST_P(NormRows, AreRightForEveryKindOfRowLength) {
  for (const I64 cols : row_lengths(GetParam()))
    check({.rows = cols > 5000 ? 1 : cols > 1000 ? 2 : 5, .cols = cols});
  report();
}

TEST_P(NormShapes, TouchNothingBeforeATensorEither) {
  for (const I64 cols : two_lengths())
    check({.rows = 1, .cols = cols, .exact = Side::kBegin});
}

TEST_P(NormShapes, AreRightOffAlignment) {
  for (const I64 cols : two_lengths()) {
    check({.rows = 1, .cols = cols, .offset = 1});
    check({.rows = 1, .cols = cols, .offset = 0});
  }
}

// Guards against gradients of the weight that are whatever was in memory before, where
// there is no row to give them one.
TEST_P(NormShapes, MayHaveNoRowsOrNoColumns) {
  check({.rows = 0, .cols = aligned_length(GetParam())});
  if (GetParam().max_cols == 128)
    check({.rows = 3, .cols = 0});
}

TEST_P(NormShapes, AreRightForWeightsThatAreZeroCentred) {
  for (const I64 cols : two_lengths())
    check({.rows = 1, .cols = cols, .zero_centered = true});
}

// With so little shared memory that sums of columns are made in chunks, where there are
// any.
TEST_P(NormShapes, GiveTheSameDxWithoutTheGradientsOfTheWeight) {
  for (const I64 cols : two_lengths()) {
    with_types(GetParam(), [&]<typename T, typename W>() {
      Problem<T, W> problem(GetParam(), {.rows = cols > 5000 ? 2 : 19,
                                         .cols = cols,
                                         .multiprocessors = 1,
                                         .capability = {7, 5}});
      const auto all = problem.backward();
      problem.setting().has_dweight = false;
      const auto dx = problem.backward();
      EXPECT_LE(problem.errors(dx).excess, kStoreUlp) << cols;
      EXPECT_TRUE(same_bits(all.dx, dx.dx)) << cols;
    });
  }
}

TEST_P(NormPasses, GiveTheSameRowsWithoutMeanAndRstd) {
  for (const I64 cols : two_lengths()) {
    with_types(GetParam(), [&]<typename T, typename W>() {
      Problem<T, W> problem(GetParam(), {.rows = 2, .cols = cols});
      const auto all = problem.forward();
      problem.setting().saves_statistics = false;
      const auto rows = problem.forward();
      EXPECT_LE(problem.errors(rows).excess, kStoreUlp) << cols;
      EXPECT_TRUE(same_bits(all.y, rows.y)) << cols;
      EXPECT_TRUE(same_bits(all.sum, rows.sum)) << cols;
    });
  }
}

TEST(NormLongRows, Of65536ElementsAreRight) {
  using test::Bf16;
  using enum ops::DType;
  for (const bool layer : {true, false}) {
    const Problem<Bf16, Bf16> problem({layer, kBf16, kBf16, 0, false, layer},
                                      {.rows = 2, .cols = 65536, .multiprocessors = 1});
    EXPECT_LE(problem.errors(problem.forward()).excess, kStoreUlp) << layer;
    EXPECT_LE(problem.errors(problem.backward()).excess, kStoreUlp) << layer;
  }
}

TEST_P(NormPasses, GiveTheSameBitsInEveryOrderOfThreads) {
  for (const I64 cols : two_lengths()) {
    with_types(GetParam(), [&]<typename T, typename W>() {
      Problem<T, W> problem(GetParam(), {.rows = cols > 5000 ? 2 : 19, .cols = cols});
      const auto forward = problem.forward();
      const auto backward = problem.backward();
      for (const Order order : {Order::kDescending, Order::kShuffled}) {
        problem.setting().order = order;
        const auto y = problem.forward();
        EXPECT_TRUE(same_bits(forward.y, y.y)) << cols;
        EXPECT_TRUE(same_bits(forward.rstd, y.rstd)) << cols;
        const auto dx = problem.backward();
        EXPECT_TRUE(same_bits(backward.dx, dx.dx)) << cols;
        EXPECT_TRUE(same_bits(backward.dweight, dx.dweight)) << cols;
        EXPECT_TRUE(same_bits(backward.dbias, dx.dbias)) << cols;
      }
    });
  }
}

}  // namespace
}  // namespace kiln::norm_test
