// The softmax operations: what they launch for a shape, run on the CPU.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "ops/softmax.h"
#include "tests/integration/softmax/problem.h"
#include "tests/support/cpu_kernel/run_plan.h"

namespace kiln::softmax_test {
namespace {

using ops::DType;
using ops::SoftmaxMask;

using Case = std::tuple<DType, SoftmaxMask>;

Kind kind_of(SoftmaxMask mask) {
  return mask == SoftmaxMask::kNone    ? Kind::kPlain
         : mask == SoftmaxMask::kBytes ? Kind::kMasked
                                       : Kind::kCausal;
}

/// Row lengths whose kernels are compiled for the CPU, each class once.
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

class SoftmaxOperation : public testing::TestWithParam<Case> {
 protected:
  template <typename Args>
  static void run(const Args& args) {
    const auto checked = check_pointers(args);
    ASSERT_TRUE(checked) << checked.error().message;
    auto plan = ops::plan(args, kiln_cpu::planned_device());
    ASSERT_TRUE(plan) << plan.error().message;
    const auto done = kiln_cpu::run_plan(*std::move(plan), kernels_of_program());
    ASSERT_TRUE(done) << done.error().message;
  }

  template <typename T>
  static void check(const Shape& shape) {
    SCOPED_TRACE(testing::Message() << shape);
    const auto [dtype, mask] = GetParam();
    const float scale = 0.25F;
    const Tensor<T> x = random_tensor<T>("x", shape.size(), {});
    const Tensor<Byte> bytes = make_mask(shape, shape.batch, {});
    const MaskView view{reinterpret_cast<const std::uint8_t*>(bytes.data()),
                        shape.sq * shape.cols};
    Tensor<T> y("y", shape.size());
    run(ops::SoftmaxForward{.dtype = dtype,
                            .y = y.data(),
                            .x = x.data(),
                            .batch = shape.batch,
                            .heads = shape.heads,
                            .sq = shape.sq,
                            .skv = shape.cols,
                            .scale = scale,
                            .mask = mask,
                            .mask_bytes = view.bytes});
    Tensor<T> dx("dx", shape.size());
    run(ops::SoftmaxBackward{.dtype = dtype,
                             .dx = dx.data(),
                             .dy = x.data(),
                             .y = y.data(),
                             .batch = shape.batch,
                             .heads = shape.heads,
                             .sq = shape.sq,
                             .skv = shape.cols,
                             .scale = scale,
                             .mask = mask});
    for (I64 row = 0; row < shape.rows(); ++row) {
      const I64 at = row * shape.cols;
      EXPECT_LE(forward_error(x.data() + at, y.data() + at, shape.cols, scale,
                              [&, mask = mask](I64 j) {
                                return is_visible(kind_of(mask), shape, view, row, j);
                              }),
                error_bound<T>(true))
          << "row " << row;
      EXPECT_LE(backward_error(y.data() + at, x.data() + at, dx.data() + at, shape.cols,
                               scale),
                error_bound<T>(false))
          << "row " << row;
    }
  }
};

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
  test::with_type(to_string(std::get<0>(GetParam())), []<typename T>() {
    for (const I64 cols : row_lengths(std::get<0>(GetParam())))
      check<T>({.batch = 2, .heads = 2, .sq = 3, .cols = cols});
  });
}

TEST_P(SoftmaxOperation, LaunchesNothingWhereThereIsNothing) {
  for (const I64 empty : {0, 1, 2, 3}) {
    const auto plan = ops::plan(ops::SoftmaxForward{.dtype = std::get<0>(GetParam()),
                                                    .batch = empty == 0 ? 0 : 2,
                                                    .heads = empty == 1 ? 0 : 2,
                                                    .sq = empty == 2 ? 0 : 2,
                                                    .skv = empty == 3 ? 0 : 2,
                                                    .mask = std::get<1>(GetParam())},
                                kiln_cpu::planned_device());
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_TRUE(plan->empty());
  }
}

}  // namespace
}  // namespace kiln::softmax_test
