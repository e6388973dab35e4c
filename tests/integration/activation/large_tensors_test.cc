// Tensors of more than 2^31 elements, of which the last rows alone are computed.

#include <gtest/gtest.h>

#include <tuple>

#include "tests/integration/activation/kernels.h"
#include "tests/integration/activation/problem.h"

namespace kiln::activation_test {
namespace {

class LargeActivation : public testing::TestWithParam<Unit> {};

INSTANTIATE_TEST_SUITE_P(Units, LargeActivation, testing::ValuesIn(all_units()),
                         kNameOf);

TEST_P(LargeActivation, IsTheSameBeyondTwoToThe31Elements) {
  with_type(GetParam().dtype, [&]<typename T>() {
    Problem<T> problem(GetParam(), {.rows = 16, .cols = 1024},
                       {.in_large_tensors_too = true});
    std::ignore = problem.run_and_check();
  });
}

}  // namespace
}  // namespace kiln::activation_test
