// Tensors and tables of more than 2^31 elements. Guards against offsets in 32 bits,
// which existing fused rotary embeddings take throughout.

#include <gtest/gtest.h>

#include <cstring>

#include "ops/plans.h"
#include "tests/integration/rope/kernels.h"
#include "tests/integration/rope/problem.h"
#include "tests/support/kernels/run_plan.h"
#include "tests/support/tensors/sparse_tensor.h"

namespace kiln::rope_test {
namespace {

using test::SparseTensor;

constexpr I64 kLarge = I64{1} << 31;
constexpr I64 kDim = 16;

/// Where a head is: `offset` into tensors of `span` elements, strided as `strides` say,
/// and at the last position of the table.
struct Place {
  RopeStrides strides;
  I64 span;
  I64 offset = 0;
  I64 positions = 1;
};

/// That a head there is turned as near the beginning of everything. `change` makes it
/// the last of the arguments.
template <typename Change>
void expect_same_at(const Place& place, const Variant& variant, const Change& change) {
  with_types(form_of(variant), [&]<typename T, typename U>() {
    constexpr I64 kPosition = 3;
    Problem<T, U> near(form_of(variant), {.dim = kDim, .rotary = kDim},
                       {.start = kPosition});
    near.run_and_check();
    SparseTensor<T> in("in", place.span);
    SparseTensor<T> out("out", place.span);
    SparseTensor<U> cos("cos", place.positions * kDim, kDim);
    SparseTensor<U> sin("sin", place.positions * kDim, kDim);
    ops::RopeArguments args = near.arguments();
    const auto copy_row = [&](const auto& table, auto* row) {
      std::memcpy(row, table.data() + kPosition * kDim, kDim * sizeof(*row));
    };
    if (near.table.has_angles) {
      copy_row(near.table.angles, cos.row(place.positions - 1));
      args.table.angles = reinterpret_cast<const float*>(cos.data());
    } else {
      copy_row(near.table.cos, cos.row(place.positions - 1));
      copy_row(near.table.sin, sin.row(place.positions - 1));
      args.table.cos = cos.data();
      args.table.sin = sin.data();
    }
    args.table.positions = place.positions;
    args.start = 0;
    args.q = {.out = out.data(),
              .in = in.data(),
              .heads = 1,
              .out_strides = place.strides,
              .in_strides = place.strides};
    change(args);
    const auto at = [&](I64 d) { return place.offset + d * place.strides.dim; };
    for (I64 d = 0; d < kDim; ++d) in[at(d)] = near.q.in.data()[d];
    const Device device = kiln_cpu::planned_device();
    auto plan = variant.is_forward() ? ops::plan(ops::RopeForward{args}, device)
                                     : ops::plan(ops::RopeBackward{args}, device);
    ASSERT_TRUE(plan) << plan.error().message;
    const auto done = kiln_cpu::run_last_blocks(*std::move(plan), 2);
    ASSERT_TRUE(done) << done.error().message;
    for (I64 d = 0; d < kDim; ++d)
      EXPECT_EQ(out[at(d)].value(), near.q.out.data()[d].value()) << "element " << d;
  });
}

class LargeRope : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Variants, LargeRope, testing::ValuesIn(kernels_of_program()),
                         kNameOfVariant);

TEST_P(LargeRope, IsTheSameBeyondTwoToThe31ElementsOfTokensAndTable) {
  const I64 tokens = kLarge / kDim + 1000;
  const I64 last = (tokens - 1) * kDim;
  expect_same_at({{.sequence = kDim, .head = kDim}, tokens * kDim, last, tokens},
                 GetParam(), [&](auto& args) { args.sequence = tokens; });
}

TEST_P(LargeRope, IsTheSameForStridesBeyondTwoToThe31) {
  for (const I64 odd : {0, 1}) {
    const I64 far = kLarge + 64 + odd;
    expect_same_at({{.batch = far}, far + kDim, far}, GetParam(),
                   [](auto& args) { args.batch = 2; });
    expect_same_at({{.head = far}, far + kDim, far}, GetParam(),
                   [](auto& args) { args.q.heads = 2; });
  }
  const I64 far = kLarge / (kDim - 1) + 1;
  expect_same_at({{.dim = far}, (kDim - 1) * far + 1}, GetParam(), [](auto&) {});
}

}  // namespace
}  // namespace kiln::rope_test
