// The activation operations against double: shapes at every edge, alignments,
// schedules.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/integration/activation/kernels.h"
#include "tests/integration/activation/problem.h"

namespace kiln::activation_test {
namespace {

using ops::GluLayout;

class ActivationShapes : public testing::TestWithParam<Unit> {
 protected:
  static double check(const Shape& shape, const Setting& setting = {}) {
    SCOPED_TRACE(testing::Message() << shape.rows << "x" << shape.cols);
    return with_type(GetParam().dtype, [&]<typename T>() {
      return Problem<T>(GetParam(), shape, setting).run_and_check();
    });
  }
  static void report(double worst) {
    RecordProperty("worst_ulp", std::to_string(worst));
    fmt::print("worst {:.3f} ulp\n", worst);
  }
};

INSTANTIATE_TEST_SUITE_P(Units, ActivationShapes, testing::ValuesIn(all_units()),
                         kNameOf);

TEST_P(ActivationShapes, AreRightForEveryRowLengthOfOneTile) {
  double worst = 0;
  for (const I64 cols : {1,  2,  3,  7,  8,  15, 16,  17,  24,  31,  32,
                         33, 63, 64, 65, 72, 96, 127, 128, 129, 200, 264}) {
    worst = std::max(worst, check({.rows = 5, .cols = cols}));
  }
  report(worst);
}

TEST_P(ActivationShapes, AreRightForRowsOfSeveralTiles) {
  for (const I64 cols : {1000, 1024, 1025, 1032, 2056, 2065}) {
    check({.rows = 3, .cols = cols});
  }
}

TEST_P(ActivationShapes, AreRightForAnyNumberOfRows) {
  for (const I64 rows : {1, 2, 31, 32, 33, 70}) {
    check({.rows = rows, .cols = 24});
    check({.rows = rows, .cols = 13}, {.layout = GluLayout::kSplit});
  }
}

TEST_P(ActivationShapes, AreRightWithFewerBlocksThanTiles) {
  check({.rows = 37, .cols = 264}, {.most_blocks = 2});
  check({.rows = 37, .cols = 29}, {.most_blocks = 1});
  check({.rows = 9, .cols = 2056}, {.most_blocks = 3});
}

TEST_P(ActivationShapes, AreRightOffAlignment) {
  for (const GluLayout layout : {GluLayout::kPacked, GluLayout::kSplit}) {
    check({.rows = 4, .cols = 64}, {.layout = layout, .offset = 0});
    check({.rows = 4, .cols = 64}, {.layout = layout, .offset = 1});
    check({.rows = 4, .cols = 64},
          {.layout = layout, .offset = 4, .exact = Side::kBegin});
  }
}

TEST_P(ActivationShapes, TouchNothingBeforeATensorEither) {
  for (const I64 cols : {1, 8, 33, 64, 1027}) {
    check({.rows = 3, .cols = cols}, {.exact = Side::kBegin});
    check({.rows = 3, .cols = cols},
          {.layout = GluLayout::kSplit, .exact = Side::kBegin});
  }
}

TEST_P(ActivationShapes, AreRightForADeviceOfAnySize) {
  for (const int multiprocessors : {0, 1, 132, 100000}) {
    check({.rows = 90, .cols = 40}, {.multiprocessors = multiprocessors});
  }
}

// Guards against a bias gradient that nobody writes where there is no row: memory that
// was never set would be added to the weights. The same of a weight without columns.
TEST_P(ActivationShapes, MayHaveNoRowsOrNoColumns) {
  check({.rows = 0, .cols = 40});
  check({.rows = 3, .cols = 0});
  check({.rows = 0, .cols = 0}, {.layout = GluLayout::kSplit});
}

TEST_P(ActivationShapes, GiveTheSameBitsInEveryOrderOfThreads) {
  with_type(GetParam().dtype, []<typename T>() {
    for (const Shape& shape : {Shape{90, 24}, Shape{40, 13}, Shape{6, 1032}}) {
      Problem<T> problem(GetParam(), shape, {});
      const Results<T> ascending = problem.run();
      for (const Order order : {Order::kDescending, Order::kShuffled}) {
        problem.setting().order = order;
        EXPECT_TRUE(same_bits(ascending, problem.run())) << shape.cols << " columns";
      }
    }
  });
}

// Guards against a kernel whose sums depend on how many blocks happen to run.
TEST_P(ActivationShapes, GiveTheSameBitsForEveryGrid) {
  with_type(GetParam().dtype, []<typename T>() {
    Problem<T> problem(GetParam(), {90, 40}, {});
    const Results<T> whole = problem.run();
    problem.setting().most_blocks = 1;
    EXPECT_TRUE(same_bits(whole, problem.run()));
  });
}

}  // namespace
}  // namespace kiln::activation_test
