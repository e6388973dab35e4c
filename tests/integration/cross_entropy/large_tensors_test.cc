// Tensors of more than 2^31 elements, of which the last rows alone are computed, and
// rows that lie far apart.

#include <tuple>

#include "tests/integration/cross_entropy/problem.h"
#include "tests/support/tensors/sparse_tensor.h"

namespace kiln::cross_entropy_test {
namespace {

constexpr I64 kRows = 4;
constexpr I64 kVocabulary = 1003;
constexpr I64 kStride = (I64{1} << 30) + 8;  // row 2 begins beyond 2^31 elements

/// Rows that are far apart, NaN at first.
template <typename T>
class Matrix : public test::SparseTensor<T> {
 public:
  explicit Matrix(const char* name)
      : test::SparseTensor<T>(name, (kRows - 1) * kStride + kVocabulary, kStride) {
    for (I64 row = 0; row < kRows; ++row)
      std::fill_n(this->row(row), kVocabulary, T::from(kNaN));
  }
};

template <typename T>
class LargeCrossEntropy : public testing::Test {};
TYPED_TEST_SUITE(LargeCrossEntropy, ElementTypes, TypeNames);

TYPED_TEST(LargeCrossEntropy, IsTheSameBeyondTwoToThe31Elements) {
  Problem<TypeParam> problem({.rows = 16,
                              .vocabulary = 1003,
                              .smoothing = 0.1F,
                              .in_large_tensors_too = true});
  std::ignore = problem.check(problem.fused());
  std::ignore = problem.check(problem.forward_and_backward());
}

TYPED_TEST(LargeCrossEntropy, RowsMayLieBeyondTwoToThe31ElementsApart) {
  const Setting setting{.rows = kRows, .vocabulary = kVocabulary, .smoothing = 0.1F};
  Problem<TypeParam> problem(setting);
  problem.set_target(3, 77);
  const auto want = problem.fused();
  std::ignore = problem.check(want);

  Matrix<TypeParam> logits("logits");
  for (I64 row = 0; row < kRows; ++row)
    std::copy_n(&problem.logit(row, 0), kVocabulary, logits.row(row));
  Matrix<TypeParam> fused("dlogits");
  Matrix<TypeParam> separate("dlogits");
  Output<TypeParam> out(setting);
  auto args = problem.fused_args(out);
  args.logits = logits.row(0);
  args.dlogits = fused.row(0);
  args.logits_stride = args.dlogits_stride = kStride;
  problem.run(args);
  auto forward = problem.forward_args(out);
  forward.logits = logits.row(0);
  forward.logits_stride = kStride;
  problem.run(forward);
  auto backward = problem.backward_args(out);
  backward.logits = logits.row(0);
  backward.dlogits = separate.row(0);
  backward.logits_stride = backward.dlogits_stride = kStride;
  problem.run(backward);
  for (I64 row = 0; row < kRows; ++row) {
    for (I64 j = 0; j < kVocabulary; ++j) {
      // Rows at other distances from a vector's boundary are added up in another order.
      const double expected = problem.gradient_row(want, row)[j].value();
      const double near = 0x1p-20 + test::ulp<TypeParam>(expected);
      ASSERT_NEAR(fused.row(row)[j].value(), expected, near) << row << ", " << j;
      ASSERT_EQ(fused.row(row)[j].value(), separate.row(row)[j].value());
    }
    EXPECT_NEAR(out.loss[static_cast<std::size_t>(row)].value(),
                want.loss[static_cast<std::size_t>(row)].value(), 1e-5);
  }
}

}  // namespace
}  // namespace kiln::cross_entropy_test
