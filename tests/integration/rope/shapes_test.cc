// The rotary embedding's kernels against double: shapes at every edge, layouts,
// alignments, schedules.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/integration/rope/kernels.h"
#include "tests/integration/rope/problem.h"

namespace kiln::rope_test {
namespace {

class RopeShapes : public testing::TestWithParam<Variant> {
 protected:
  static double check(const Shape& shape, const Setting& setting = {}) {
    SCOPED_TRACE(testing::Message()
                 << shape << " gap " << setting.gap << (setting.paired ? " paired" : "")
                 << " start " << setting.start);
    return with_types(form_of(GetParam()), [&]<typename T, typename U>() {
      return Problem<T, U>(form_of(GetParam()), shape, setting).run_and_check();
    });
  }
  static void report(double worst) {
    RecordProperty("worst_ulp", std::to_string(worst));
    fmt::print("worst {:.4f} ulp\n", worst);
  }
};

INSTANTIATE_TEST_SUITE_P(Variants, RopeShapes, testing::ValuesIn(kernels_of_program()),
                         kNameOfVariant);

TEST_P(RopeShapes, AreRightForEveryHeadDimAndRotaryDim) {
  double worst = 0;
  for (const I64 dim :
       {2, 3, 4, 6, 7, 8, 16, 24, 31, 32, 33, 64, 66, 80, 96, 128, 256}) {
    for (const I64 rotary : {I64{2}, dim / 4 * 2, dim / 8 * 2, dim / 2 * 2}) {
      if (rotary == 0) {
        continue;
      }
      const Shape shape = sized({2, 3, 3, dim}, 1, rotary);
      worst = std::max(worst, check(shape));
      worst = std::max(worst, check(shape, {.paired = true}));
    }
  }
  report(worst);
}

TEST_P(RopeShapes, AreRightForEveryNumberOfTokens) {
  for (const I64 sequence : {0, 1, 2, 31, 32, 33, 127}) {
    check(sized({1, sequence, 2, 16}, 1, 16));
    check({.batch = 3, .sequence = sequence, .q_heads = 1, .dim = 6, .rotary = 4});
  }
  check({.batch = 0, .sequence = 5});
}

TEST_P(RopeShapes, AreRightForEveryNumberOfHeads) {
  for (const auto& [q, k] : {std::pair<I64, I64>{1, 1},
                             {8, 2},
                             {5, 3},
                             {33, 1},
                             {0, 2},
                             {7, 0},
                             {3, 9},
                             {0, 0}}) {
    check(sized({2, 3, q, 32}, k, 16));
    check(
        {.batch = 2, .sequence = 3, .q_heads = q, .k_heads = k, .dim = 7, .rotary = 6});
  }
}

TEST_P(RopeShapes, AreRightWhereAThreadHasManyHeads) {
  double worst = 0;
  for (const auto& [q, k] : {std::pair<I64, I64>{16, 4}, {13, 2}, {32, 0}}) {
    worst =
        std::max(worst, check({.batch = 4, .sequence = 40, .q_heads = q, .k_heads = k},
                              {.multiprocessors = 1}));
  }
  check(
      {.batch = 8, .sequence = 30, .q_heads = 9, .k_heads = 2, .dim = 30, .rotary = 10},
      {.multiprocessors = 1});
  report(worst);
}

TEST_P(RopeShapes, AreRightForEveryLayoutAndGap) {
  const Shape shape = sized({3, 5, 4, 32}, 2, 16);
  for (const Layout in : {Layout::kSbhd, Layout::kBshd, Layout::kBhsd, Layout::kDbsh}) {
    for (const Layout out :
         {Layout::kSbhd, Layout::kBshd, Layout::kBhsd, Layout::kDbsh}) {
      for (const I64 gap : {0, 3, 8}) {
        check(shape, {.in = in, .out = out, .gap = gap});
      }
    }
  }
}

TEST_P(RopeShapes, AreRightOffAlignment) {
  const Shape shape = sized({2, 3, 3, 32}, 1, 16);
  for (const bool paired : {false, true}) {
    for (const std::size_t offset : {1U, 2U, 4U}) {
      check(shape, {.offset = offset, .paired = paired});
      check(shape, {.table_offset = offset, .paired = paired});
    }
    for (const I64 gap : {1, 2, 4, 8}) {
      check(shape,
            {.offset = 0, .table_offset = 0, .paired = paired, .table_gap = gap});
    }
  }
}

TEST_P(RopeShapes, AreRightWhereOneTensorAloneIsOffAlignment) {
  const Shape shape{.sequence = 3, .q_heads = 2, .k_heads = 1, .dim = 32, .rotary = 16};
  for (const std::string_view odd :
       {"q_in", "q_out", "k_in", "k_out", "angles", "cos", "sin"}) {
    SCOPED_TRACE(odd);
    check(shape, {.offset = 0, .table_offset = 0, .odd = odd});
  }
}

TEST_P(RopeShapes, TouchNothingBeforeATensorEither) {
  for (const I64 dim : {8, 15, 32, 64, 72}) {
    check(sized({2, 3, 2, dim}, 1, dim / 2 * 2), {.exact = Side::kBegin});
  }
}

TEST_P(RopeShapes, AreRightForMoreTokensThanBlocks) {
  check(
      {.batch = 3, .sequence = 67, .q_heads = 3, .k_heads = 2, .dim = 32, .rotary = 16},
      {.few_blocks = true});
  check({.batch = 3, .sequence = 37, .q_heads = 2, .dim = 9, .rotary = 6},
        {.few_blocks = true});
}

TEST_P(RopeShapes, AreRightForPackedSequences) {
  for (const I64 dim : {32, 10}) {
    Shape shape{.batch = 5,
                .sequence = 40,
                .q_heads = 3,
                .k_heads = 1,
                .dim = dim,
                .rotary = 8,
                .cu_seqlens = {0, 7, 7, 8, 39, 40}};
    check(shape);
    check(shape, {.start = 4, .starts = {3, 900, 0, 2, 11}});
    shape.cu_seqlens = {3, 3, 5, 20, 20, 30};  // tokens of no sequence on both sides
    check(shape);
    shape.batch = 0;
    shape.cu_seqlens = {7};
    check(shape);
  }
}

TEST_P(RopeShapes, AreRightFromAnyStart) {
  const Shape shape = sized({3, 4, 2, 32}, 1, 32);
  check(shape, {.start = 100});
  check(shape, {.starts = {5, 0, 77}});
  check(shape, {.start = 10, .starts = {5, -10, 77}});
}

TEST_P(RopeShapes, GiveTheSameBitsInEveryOrderOfThreads) {
  with_types(form_of(GetParam()), [&]<typename T, typename U>() {
    for (const I64 dim : {30, 64}) {
      const Shape shape = sized({2, 9, 5, dim}, 2, 16);
      Problem<T, U> ascending(form_of(GetParam()), shape, {});
      ascending.run();
      for (const Order order : {Order::kDescending, Order::kShuffled}) {
        Problem<T, U> other(form_of(GetParam()), shape, {.order = order});
        other.run();
        EXPECT_TRUE(same_bits(ascending.q.out, other.q.out));
        EXPECT_TRUE(same_bits(ascending.k.out, other.k.out));
      }
    }
  });
}

}  // namespace
}  // namespace kiln::rope_test
