// Tensors of more than 2^31 elements, of which the last rows alone are computed. Guards
// against offsets in 32 bits, which make a kernel write somewhere else from there on.

#include <gtest/gtest.h>

#include "ops/plans.h"
#include "tests/integration/activation/kernels.h"
#include "tests/integration/activation/problem.h"
#include "tests/support/kernels/run_plan.h"
#include "tests/support/tensors/sparse_tensor.h"

namespace kiln::activation_test {
namespace {

using test::SparseTensor;

constexpr I64 kCols = 1024;
constexpr I64 kRows = (I64{1} << 21) + 64;  // of y; a few more than 2^31 elements
constexpr I64 kTail = 8;                    // rows that are looked at

class LargeActivation : public testing::TestWithParam<Unit> {
 protected:
  /// The last blocks of the plan's first launch.
  template <typename Args>
  static void run(const Args& args) {
    // So many multiprocessors that the sums of a bias have as many parts as possible.
    auto plan = ops::plan(args, kiln_cpu::planned_device({9, 0}, 1 << 30));
    ASSERT_TRUE(plan) << plan.error().message;
    const auto done = kiln_cpu::run_last_blocks(*std::move(plan), kTail);
    ASSERT_TRUE(done) << done.error().message;
  }
};

INSTANTIATE_TEST_SUITE_P(Units, LargeActivation, testing::ValuesIn(all_units()),
                         kNameOf);

TEST_P(LargeActivation, IsRightBeyondTwoToThe31Elements) {
  const Unit& unit = GetParam();
  with_type(unit.dtype, [&]<typename T>() {
    SparseTensor<T> x("x", kRows * unit.halves() * kCols, unit.halves() * kCols);
    SparseTensor<T> dx("dx", kRows * unit.halves() * kCols, unit.halves() * kCols);
    SparseTensor<T> y("y", kRows * kCols, kCols);
    SparseTensor<T> dy("dy", kRows * kCols, kCols);
    SparseTensor<float> weight("weight", kRows);
    SparseTensor<float> sums("sums", kRows / 4 * unit.halves() * kCols);
    Tensor<T> bias("bias", static_cast<std::size_t>(unit.halves() * kCols));
    bias.fill(0.5F);
    for (I64 row = kRows - kTail; row < kRows; ++row) {
      for (I64 i = 0; i < unit.halves() * kCols; ++i)
        x.row(row)[i] = T::from(static_cast<float>((row * 31 + i * 7) % 64) / 8 - 4);
      std::fill_n(y.row(row), kCols, T::from(kNaN));
      std::fill_n(dx.row(row), unit.halves() * kCols, T::from(kNaN));
      std::fill_n(dy.row(row), kCols, T::from(2));
      *weight.row(row) = 1.5F;
    }
    const Limits limits{.alpha = 1.702F, .limit = 3.0F, .offset = 1.0F};
    const Pointers at{.y = y.data(),
                      .dx = dx.data(),
                      .dweight = sums.row(0),
                      .x = x.data(),
                      .dy = dy.data(),
                      .bias = bias.data(),
                      .weight = weight.row(0)};
    const auto run_both = [&]<typename Forward, typename Backward>() {
      const Shape shape{.rows = kRows, .cols = kCols};
      run(arguments<Forward>(unit, shape, {.limits = limits}, at));
      auto args = arguments<Backward>(unit, shape, {.limits = limits}, at);
      args.workspace = sums.data();
      args.workspace_bytes = ~std::uint64_t{0};
      run(args);
    };
    if (unit.gated)
      run_both.template operator()<ops::GluForward, ops::GluBackward>();
    else
      run_both.template operator()<ops::ActivationForward, ops::ActivationBackward>();
    const double bound = arithmetic_bound<T>(unit);
    const double shift = unit.has_bias ? 0.5 : 0;
    Errors errors;
    const I64 tiles = sizeof(T) == 4 ? 2 : 1;  // beside each other
    I64 computed = 0;
    for (I64 row = kRows - kTail / tiles; row < kRows; ++row) {
      for (I64 col = 0; col < kCols; ++col) {
        const double g = x.row(row)[col].value() + shift;
        const double l = unit.gated ? x.row(row)[kCols + col].value() + shift : 0;
        const Element element =
            element_of(unit, limits, g, l, unit.has_weight ? 1.5 : 1);
        errors.add<T>(y.row(row)[col].value(), element.y, bound, std::fabs(element.y),
                      1);
        errors.add<T>(dx.row(row)[col].value(), 2 * element.by_input.value, bound,
                      2 * element.by_input.terms, 1);
        if (unit.gated)
          errors.add<T>(dx.row(row)[kCols + col].value(), 2 * element.by_linear, bound,
                        2 * std::fabs(element.by_linear), 1);
        ++computed;
      }
    }
    EXPECT_EQ(computed, kTail / tiles * kCols);
    EXPECT_TRUE(errors.are_small()) << errors.beyond;
  });
}

}  // namespace
}  // namespace kiln::activation_test
