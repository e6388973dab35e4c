// Tensors of more than 2^31 elements, of which the last rows alone are computed.

#include <tuple>

#include "tests/integration/cross_entropy/problem.h"

namespace kiln::cross_entropy_test {
namespace {

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

}  // namespace
}  // namespace kiln::cross_entropy_test
