// Tensors of more than 2^31 elements, of which the last rows alone are computed.

#include <tuple>

#include "tests/integration/norm/problem.h"

namespace kiln::norm_test {
namespace {

class LargeNorm : public testing::TestWithParam<Configuration> {};

INSTANTIATE_TEST_SUITE_P(All, LargeNorm, testing::ValuesIn(configurations()), kNameOf);

TEST_P(LargeNorm, IsTheSameBeyondTwoToThe31Elements) {
  const Configuration& of = GetParam();
  with_types(of, [&]<typename T, typename W>() {
    const I64 rows = of.max_cols == 128 || of.max_cols == 512 ? 64 : 8;
    const Problem<T, W> problem(
        of, {.rows = rows, .cols = aligned_length(of), .in_large_tensors_too = true});
    std::ignore = problem.forward();
    std::ignore = problem.backward();
  });
}

}  // namespace
}  // namespace kiln::norm_test
