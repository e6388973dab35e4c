// The softmax operations: what they launch for a shape, run on the CPU.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "ops/plans.h"
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
    auto plan = ops::plan(args, kiln_cpu::planned_device(), ops::Pointers::kChecked);
    ASSERT_TRUE(plan) << plan.error().message;
    const auto done = kiln_cpu::run_plan(*std::move(plan), kernels_of_program());
    ASSERT_TRUE(done) << done.error().message;
  }

  template <typename Args>
  static Args arguments(const Shape& shape) {
    Args args;
    std::tie(args.dtype, args.mask) = GetParam();
    args.batch = shape.batch;
    args.heads = shape.heads;
    args.sq = shape.sq;
    args.skv = shape.cols;
    return args;
  }

  template <typename T>
  static void check(const Shape& shape) {
    SCOPED_TRACE(testing::Message() << shape);
    const Kind kind = kind_of(std::get<1>(GetParam()));
    const Setting setting{.scale = 0.25F};
    Tensors<T> forward({kind, true}, shape, setting);
    Tensor<T> y = forward.make_out();
    auto args = arguments<ops::SoftmaxForward>(shape);
    args.y = y.data();
    args.x = forward.in().data();
    if (args.mask == ops::SoftmaxMask::kBytes)
      args.mask_bytes = forward.mask().bytes;
    args.scale = setting.scale;
    run(args);
    std::ignore = forward.check(y);

    Tensors<T> backward({kind, false}, shape, setting);
    std::ranges::copy(y, backward.y().begin());
    Tensor<T> dx = backward.make_out();
    auto gradient_args = arguments<ops::SoftmaxBackward>(shape);
    gradient_args.dx = dx.data();
    gradient_args.dy = backward.in().data();
    gradient_args.y = backward.y().data();
    gradient_args.scale = setting.scale;
    run(gradient_args);
    std::ignore = backward.check(dx);
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
    const auto args = arguments<ops::SoftmaxForward>({.batch = empty == 0 ? 0 : 2,
                                                      .heads = empty == 1 ? 0 : 2,
                                                      .sq = empty == 2 ? 0 : 2,
                                                      .cols = empty == 3 ? 0 : 2});
    const auto plan = ops::plan(args, kiln_cpu::planned_device());
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_TRUE(plan->empty());
  }
}

}  // namespace
}  // namespace kiln::softmax_test
