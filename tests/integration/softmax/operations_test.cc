// The softmax operations: what they launch for a shape, run on the CPU.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "tests/integration/softmax/operation.h"
#include "tests/integration/softmax/problem.h"
#include "tests/support/operations/run_operation.h"

namespace kiln::softmax_test {
namespace {

using ops::DType;
using ops::SoftmaxMask;

using Case = std::tuple<DType, SoftmaxMask>;

/// Row lengths whose kernels run on the CPU, each class once.
std::vector<I64> row_lengths(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {40, 64, 5000};
    case DType::kBf16:
      return {1, 24, 32, 128, 3000, 5000};
    default:
      return {7, 32, 300, 3000, 5000};
  }
}

class SoftmaxOperation : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    All, SoftmaxOperation,
    testing::Combine(testing::Values(DType::kF16, DType::kBf16, DType::kF32),
                     testing::Values(SoftmaxMask::kNone, SoftmaxMask::kBytes,
                                     SoftmaxMask::kCausal)),
    [](const auto& each) {
      return fmt::format("{}_{}", to_string(std::get<0>(each.param)),
                         static_cast<int>(std::get<1>(each.param)));
    });

TEST_P(SoftmaxOperation, ComputesForwardAndBackwardForEveryClassOfRowLength) {
  const auto [dtype, mask] = GetParam();
  test::with_type(to_string(dtype), [&, dtype = dtype, mask = mask]<typename T>() {
    for (const I64 cols : row_lengths(dtype))
      check_operations<T>(dtype, mask, {.batch = 2, .heads = 2, .sq = 3, .cols = cols},
                          [](const auto& args) {
                            const auto done = test::run_operation(args);
                            ASSERT_TRUE(done) << done.error().message;
                          });
  });
}

}  // namespace
}  // namespace kiln::softmax_test
