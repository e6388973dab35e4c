// What existing fused softmax kernels got wrong, each as a test of what holds here. The
// defect is told above its test. Those of compiled code, registers and fast math, are
// in template_spills_test.cc and template_arithmetic_test.cc; those of sizes beyond 32
// bits in large_tensors_test.cc.

#include <gtest/gtest.h>

#include <tuple>

#include "tests/integration/softmax/problem.h"

namespace kiln::softmax_test {
namespace {

class SoftmaxGuarantees : public testing::TestWithParam<Variant> {};
class MaskedSoftmaxGuarantees : public SoftmaxGuarantees {};
class CausalSoftmaxGuarantees : public SoftmaxGuarantees {};

INSTANTIATE_TEST_SUITE_P(Variants, SoftmaxGuarantees,
                         testing::ValuesIn(kernels_of_program()), kNameOfVariant);
INSTANTIATE_TEST_SUITE_P(Variants, MaskedSoftmaxGuarantees,
                         testing::ValuesIn(forward_variants(Kind::kMasked)),
                         kNameOfVariant);
INSTANTIATE_TEST_SUITE_P(Variants, CausalSoftmaxGuarantees,
                         testing::ValuesIn(variants(Kind::kCausal)), kNameOfVariant);

// Guards against a scale that the forward kernel rounds to the elements' type while the
// backward kernel does not: the gradient of another function.
TEST_P(SoftmaxGuarantees, TheScaleIsAFloatInBothDirections) {
  with_type(GetParam().param("dtype"), []<typename T>() {
    // Just below half way from 1 to the next T, which is where a 16-bit T would put it.
    const float scale = 1.0F + std::ldexp(0.99F, -T::kDigits);
    const bool forward = GetParam().is_forward();
    const Problem<T> problem(GetParam(), {.sq = 6, .cols = 32}, {.scale = scale});
    const Tensor<T> out = problem.run();
    EXPECT_LE(problem.error(out, scale), error_bound<T>(forward));
    if (sizeof(T) == 2) {
      EXPECT_EQ(T::from(scale).value(), 1);
      EXPECT_GT(problem.error(out, 1.0F), error_bound<T>(forward));
    }
  });
}

// Guards against a grid that divides the rows by the rows of a block and leaves the
// rest uncomputed, with the check for that gone. What nobody wrote is NaN here.
TEST_P(SoftmaxGuarantees, EveryRowIsComputedWhateverTheirNumber) {
  with_type(GetParam().param("dtype"), []<typename T>() {
    for (const I64 rows : {1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 31, 33, 63, 64, 65, 129}) {
      const Shape shape{.batch = rows, .sq = 1, .cols = 5};
      SCOPED_TRACE(testing::Message() << shape);
      std::ignore = Problem<T>(GetParam(), shape, {}).run_and_check();
    }
    const Shape odd{.batch = 3, .heads = 5, .sq = 7, .cols = 5};
    std::ignore = Problem<T>(GetParam(), odd, {}).run_and_check();
  });
}

// Guards against a launcher that does nothing, and says nothing, for a row that is
// longer than the longest it has a kernel for.
TEST_P(SoftmaxGuarantees, ARowLongerThanTheKernelTakesIsAnErrorAndNotLeftOut) {
  const bool takes_any = max_cols(GetParam()) == std::numeric_limits<I64>::max();
  const I64 cols = takes_any ? I64{1} << 40 : max_cols(GetParam()) + 1;
  const auto geometry = GetParam().geometry({{"rows", 4}, {"cols", cols}});
  EXPECT_EQ(geometry.has_value(), takes_any);
  if (!geometry) {
    EXPECT_NE(geometry.error().message.find("a row exceeds max_cols"),
              std::string::npos)
        << geometry.error().message;
  }
}

/// Row 1 of 3, with NaN in the other two. Once with the tensors' last byte at a page
/// that nobody may touch, once with their first at a vector's boundary.
template <typename T>
void expect_row_untouched_by_its_neighbours(const Variant& variant, I64 cols) {
  for (const Setting& setting : {Setting{}, Setting{.offset = 0, .mask_offset = 0}}) {
    Problem<T> problem(variant, {.sq = 3, .cols = cols}, setting);
    for (const I64 row : {0, 2}) {
      for (I64 j = 0; j < cols; ++j) {
        problem.in(row, j) = T::from(kNaN);
      }
    }
    EXPECT_LE(problem.row_error(problem.run(), 1, setting.scale),
              error_bound<T>(variant.is_forward()))
        << cols << " columns";
  }
}

// Guards against vectors of which only the first element is compared with the row's
// end, and rows that do not begin at a vector's boundary: the next row is read, at an
// address that a device refuses.
TEST_P(SoftmaxGuarantees, ARowOfAnyLengthReadsNoOther) {
  with_type(GetParam().param("dtype"), []<typename T>() {
    // Each place of the end in a vector of 4 or 8, and around a warp's.
    for (I64 cols = 1; cols <= 18; ++cols) {
      expect_row_untouched_by_its_neighbours<T>(GetParam(), cols);
    }
    for (const I64 cols : {31, 32, 33, 63, 64, 65, 67, 1001, 1002, 4094, 12345}) {
      if (cols <= max_cols(GetParam())) {
        expect_row_untouched_by_its_neighbours<T>(GetParam(), cols);
      }
    }
  });
}

// Guards against values that are taken for masked ones because they are lower than the
// number that stands for those.
TEST_P(MaskedSoftmaxGuarantees, ValuesBelowMinusTenThousandAreValues) {
  with_type(GetParam().param("dtype"), []<typename T>() {
    const Shape shape{.sq = 4, .cols = 24};
    Problem<T> problem(GetParam(), shape, {.scale = 1.0F});
    for (I64 i = 0; i < shape.rows() * shape.cols; ++i) {
      problem.in(i / 24, i % 24) = T::from(i % 3 == 0 ? -30000.0F : -30016.0F);
    }
    std::ignore = problem.run_and_check();
  });
}

/// How many columns the rows see that this block computes: its work.
template <typename T>
I64 work_of_block(const Problem<T>& problem, long long block) {
  const Shape& shape = problem.shape();
  Tensor<T> out("out", shape.size(), {});
  problem.run_into(out, {.first_block = block, .most_blocks = 1});
  I64 visible = 0;
  for (I64 row = 0; row < shape.rows(); ++row) {
    const bool written = !std::isnan(out.data()[row * shape.cols].value());
    visible += written ? row % shape.sq + 1 : 0;
  }
  return visible;
}

// Guards against blocks of which the first have next to nothing to do and the last the
// whole row: the longest one is what the launch takes.
TEST_P(CausalSoftmaxGuarantees, NeighbouringBlocksShareTheTriangleEvenly) {
  with_type(GetParam().param("dtype"), []<typename T>() {
    const I64 sq = std::min<I64>(256, max_cols(GetParam()));
    const Problem<T> problem(GetParam(), {.batch = 4, .sq = sq, .cols = sq}, {});
    const auto geometry = GetParam().geometry({{"rows", 4 * sq}, {"cols", sq}});
    const long long blocks = geometry.value().grid[0];
    const I64 rows_of_both = 4 * sq / blocks * 2;
    for (long long block = 0; block + 1 < blocks; block += blocks > 64 ? 32 : 2) {
      // Of two rows one sees as many columns more than half of them as the other fewer.
      EXPECT_EQ(work_of_block(problem, block) + work_of_block(problem, block + 1),
                rows_of_both * (sq + 1) / 2)
          << "blocks from " << block;
    }
  });
}

}  // namespace
}  // namespace kiln::softmax_test
