// Tensors of more than 2^31 elements, of which the last rows alone are computed.

#include <gtest/gtest.h>

#include "tests/integration/softmax/operation.h"
#include "tests/integration/softmax/problem.h"
#include "tests/support/operations/run_operation.h"

namespace kiln::softmax_test {
namespace {

/// Of a forward kernel, and the backward kernel of that kind.
class LargeSoftmax : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Variants, LargeSoftmax, testing::ValuesIn(forward_variants()),
                         kNameOfVariant);

TEST_P(LargeSoftmax, IsTheSameBeyondTwoToThe31Elements) {
  const Variant& kernel = GetParam();
  const Kind kind = kind_of(kernel);
  const auto mask = kind == Kind::kPlain    ? ops::SoftmaxMask::kNone
                    : kind == Kind::kMasked ? ops::SoftmaxMask::kBytes
                                            : ops::SoftmaxMask::kCausal;
  const bool is_any = kernel.param("max_cols") == "any";
  const Shape shape{.batch = 4, .sq = 4, .cols = is_any ? 5000 : max_cols(kernel)};
  test::with_type(kernel.param("dtype"), [&]<typename T>() {
    check_operations<T>(
        test::dtype_of(kernel.param("dtype")), mask, shape,
        [](const auto& args) {
          const auto done = test::run_operation(args, {.in_large_tensors_too = true});
          ASSERT_TRUE(done) << done.error().message;
        },
        is_uniform(kernel));
  });
}

}  // namespace
}  // namespace kiln::softmax_test
