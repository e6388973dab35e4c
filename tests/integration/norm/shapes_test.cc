// The norm operations against double: shapes at every edge, alignments, schedules. What
// results may be off by says reference.h.

#include <fmt/format.h>

#include "tests/integration/norm/problem.h"

namespace kiln::norm_test {
namespace {

class NormShapes : public testing::TestWithParam<Configuration> {
 protected:
  /// Both passes; adds to what report() says.
  void check(const Setting& setting) {
    SCOPED_TRACE(testing::Message() << setting);
    with_types(GetParam(), [&]<typename T, typename W>(std::type_identity<T>,
                                                       std::type_identity<W>) {
      const Problem<T, W> problem(GetParam(), setting);
      const Errors forward = problem.errors(problem.forward());
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
  /// A few of row_lengths(): unaligned and aligned.
  static std::vector<I64> some_lengths() {
    const auto all = row_lengths(GetParam());
    return {all[1], all[all.size() - 2], all.back()};
  }

 private:
  double worst_forward_ = 0;
  double worst_excess_ = 0;
};

INSTANTIATE_TEST_SUITE_P(All, NormShapes, testing::ValuesIn(configurations()),
                         [](const auto& each) { return name_of(each.param); });

TEST_P(NormShapes, AreRightForEveryKindOfRowLength) {
  for (const I64 cols : row_lengths(GetParam()))
    check({.rows = cols > 5000 ? 2 : 5, .cols = cols});
  report();
}

TEST_P(NormShapes, TouchNothingBeforeATensorEither) {
  for (const I64 cols : some_lengths())
    check({.rows = 2, .cols = cols, .exact = Side::kBegin});
}

TEST_P(NormShapes, AreRightOffAlignment) {
  for (const I64 cols : some_lengths()) {
    check({.rows = 2, .cols = cols, .offset = 1});
    check({.rows = 2, .cols = cols, .offset = 0, .exact = Side::kBegin});
  }
}

// More rows than blocks, a number that no block's share divides, teams without a row.
TEST_P(NormShapes, AreRightForAnyNumberOfRows) {
  const I64 aligned = row_lengths(GetParam())[GetParam().max_cols == 128 ? 4 : 1];
  for (const I64 rows : {1, 2, 7, 16, 17, 33, 61})
    check({.rows = aligned > 5000 ? (rows + 6) / 7 : rows,
           .cols = aligned,
           .multiprocessors = 1});
  check({.rows = aligned > 5000 ? 5 : 41,
         .cols = row_lengths(GetParam()).front(),
         .multiprocessors = 1});
}

TEST_P(NormShapes, AreRightForWeightsThatAreZeroCentred) {
  for (const I64 cols : some_lengths())
    check({.rows = 2, .cols = cols, .zero_centered = true});
}

TEST_P(NormShapes, MayHaveNoRowsOrNoColumns) {
  check({.rows = 0, .cols = row_lengths(GetParam()).front()});
  if (GetParam().max_cols == 128)
    check({.rows = 3, .cols = 0});
}

TEST_P(NormShapes, GiveTheSameBitsInEveryOrderOfThreads) {
  const auto lengths = row_lengths(GetParam());
  for (const I64 cols : {lengths[1], lengths[lengths.size() - 3]}) {
    with_types(GetParam(), [&]<typename T, typename W>(std::type_identity<T>,
                                                       std::type_identity<W>) {
      Problem<T, W> problem(GetParam(), {.rows = cols > 5000 ? 3 : 19, .cols = cols});
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
