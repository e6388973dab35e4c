// The softmax kernels against double: shapes at every edge, alignments, schedules.
// Bounds are those the texts promise.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/integration/softmax/problem.h"

namespace kiln::softmax_test {
namespace {

class SoftmaxShapes : public testing::TestWithParam<Variant> {
 protected:
  static double check(const Shape& shape, const Setting& setting = {}) {
    SCOPED_TRACE(testing::Message() << shape << " scale " << setting.scale);
    return with_type(GetParam().param("dtype"), [&]<typename T>() {
      return Problem<T>(GetParam(), shape, setting).run_and_check();
    });
  }
  [[nodiscard]] static bool takes(I64 cols) { return cols <= max_cols(GetParam()); }
  static void report(double worst) {
    RecordProperty("worst_ulp", std::to_string(worst));
    fmt::print("worst {:.3f} ulp\n", worst);
  }
};

INSTANTIATE_TEST_SUITE_P(Variants, SoftmaxShapes,
                         testing::ValuesIn(kernels_of_program()), kNameOfVariant);

TEST_P(SoftmaxShapes, AreRightForEveryRowLengthUpTo130) {
  double worst = 0;
  for (I64 cols = 1; cols <= 130; ++cols) {
    if (takes(cols) && (cols < 40 || cols % 8 < 2)) {
      worst = std::max(worst, check({.batch = 2, .heads = 2, .sq = 3, .cols = cols}));
    }
  }
  report(worst);
}

TEST_P(SoftmaxShapes, TouchNothingBeforeATensorEither) {
  for (const I64 cols : {1, 2, 7, 8, 31, 32, 33, 64, 127, 128, 1024, 1027}) {
    if (takes(cols)) {
      check({.batch = 2, .sq = 3, .cols = cols}, {.exact = Side::kBegin});
    }
  }
}

TEST_P(SoftmaxShapes, AreRightForLongRows) {
  double worst = 0;
  for (const I64 cols : {256, 257, 512, 1000, 1024, 2048, 4088, 4095, 4096, 4097, 8200,
                         24576, 24580, 49152, 49160, 131072, 131073}) {
    if (takes(cols)) {
      worst = std::max(worst, check({.sq = cols > 5000 ? 1 : 3, .cols = cols}));
    }
  }
  report(worst);
}

TEST_P(SoftmaxShapes, AreRightForMoreRowsThanBlocks) {
  check({.batch = 3, .heads = 2, .sq = 37, .cols = 24}, {.most_blocks = 2});
  check({.batch = 3, .heads = 2, .sq = 7, .cols = 29}, {.most_blocks = 1});
}

TEST_P(SoftmaxShapes, AreRightOffAlignment) {
  for (const I64 cols : {16, 32, 1024, 2048}) {
    if (takes(cols)) {
      check({.sq = 3, .cols = cols}, {.offset = 1});
      check({.sq = 3, .cols = cols}, {.offset = 4, .exact = Side::kBegin});
      check({.sq = 3, .cols = cols}, {.mask_offset = 1});
    }
  }
}

TEST_P(SoftmaxShapes, AreRightWhereQueriesAndKeysDifferInNumber) {
  for (const I64 sq : {1, 5, 32, 41}) {
    check({.batch = 2, .sq = sq, .cols = 8});
    check({.batch = 2, .sq = sq, .cols = 31});
    check({.batch = 2, .sq = sq, .cols = 32});
  }
}

TEST_P(SoftmaxShapes, AreRightWithAnyScale) {
  for (const float scale : {-1.0F, 0.0F, 1.0F, 3.7F, 1e-30F, 1000.0F, -0.01F}) {
    check({.sq = 5, .cols = 32}, {.scale = scale});
    check({.sq = 5, .cols = 31}, {.scale = scale});
  }
}

TEST_P(SoftmaxShapes, AreRightWithOneMaskForTheWholeBatch) {
  check({.batch = 3, .heads = 2, .sq = 6, .cols = 32}, {.mask_batches = 1});
}

TEST_P(SoftmaxShapes, MayHaveNoRowsOrNoColumns) {
  check({.batch = 0, .cols = 32});
  check({.sq = 3, .cols = 0});
}

template <typename T>
void expect_same_bits_in_every_order(const Variant& variant, I64 cols) {
  Problem<T> problem(variant, {.sq = 2, .cols = cols}, {});
  const Tensor<T> ascending = problem.run();
  for (const Order order : {Order::kDescending, Order::kShuffled}) {
    problem.setting().order = order;
    EXPECT_TRUE(same_bits(ascending, problem.run())) << cols << " columns";
  }
}

TEST_P(SoftmaxShapes, GiveTheSameBitsInEveryOrderOfThreads) {
  for (const I64 cols : {32, 31, 1024, 4096, 30000}) {
    if (takes(cols)) {
      with_type(GetParam().param("dtype"), [&]<typename T>() {
        expect_same_bits_in_every_order<T>(GetParam(), cols);
      });
    }
  }
}

}  // namespace
}  // namespace kiln::softmax_test
