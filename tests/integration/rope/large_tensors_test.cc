// Tensors and tables of more than 2^31 elements. Guards against offsets in 32 bits,
// which existing fused rotary embeddings take throughout.

#include <gtest/gtest.h>

#include "ops/plans.h"
#include "tests/integration/rope/kernels.h"
#include "tests/integration/rope/problem.h"
#include "tests/support/kernels/run_plan.h"
#include "tests/support/tensors/sparse_tensor.h"

namespace kiln::rope_test {
namespace {

using test::SparseTensor;

constexpr I64 kLarge = I64{1} << 31;

class LargeRope : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Variants, LargeRope, testing::ValuesIn(kernels_of_program()),
                         kNameOfVariant);

/// One head of 16 elements a token; what is not set here is a problem's own.
template <typename T, typename U>
class LargeProblem {
 public:
  /// Heads lie where `strides` say, up to `span` elements; the table has `positions`.
  LargeProblem(const Variant& variant, const RopeStrides& strides, I64 span,
               I64 positions)
      : variant_(variant),
        angles_(variant.param("table") == "angles"),
        in_("in", span),
        out_("out", span),
        cos_("cos", positions * kDim),
        sin_("sin", positions * kDim) {
    args_.dtype = form_of(variant).dtype;
    args_.style = form_of(variant).style;
    args_.batch = args_.sequence = 1;
    args_.head_dim = args_.rotary_dim = kDim;
    args_.q = {.out = out_.data(),
               .in = in_.data(),
               .heads = 1,
               .out_strides = strides,
               .in_strides = strides};
    args_.table = {.positions = positions, .columns = kDim};
    if (angles_) {
      args_.table.angles = reinterpret_cast<const float*>(cos_.data());
    } else {
      args_.table.cos = cos_.data();
      args_.table.sin = sin_.data();
      args_.table.dtype = std::is_same_v<U, F32> ? ops::DType::kF32 : args_.dtype;
    }
  }
  /// Of one token, until something else is said.
  [[nodiscard]] ops::RopeArguments& args() { return args_; }

  /// Numbers for the head at `offset`, and for position `row` of the table.
  void fill(I64 offset, I64 row) {
    for (I64 d = 0; d < kDim; ++d) {
      at(in_, offset, d) = T::from(static_cast<float>(d + 1) / 4);
      const auto angle = static_cast<float>(d) / 8;
      cos_[row * kDim + d] = U::from(angles_ ? angle : std::cos(angle));
      sin_[row * kDim + d] = U::from(std::sin(angle));
    }
  }

  /// Runs the last blocks.
  void run(long long most_blocks = 1LL << 40) {
    auto plan = variant_.is_forward()
                    ? ops::plan(ops::RopeForward{args_}, kiln_cpu::planned_device())
                    : ops::plan(ops::RopeBackward{args_}, kiln_cpu::planned_device());
    ASSERT_TRUE(plan) << plan.error().message;
    const auto done = kiln_cpu::run_last_blocks(*std::move(plan), most_blocks);
    ASSERT_TRUE(done) << done.error().message;
  }

  /// The head at `offset` is that of `fill`, rotated by `row`.
  void expect(I64 offset, I64 row) {
    Turns turns;
    std::vector<double> x;
    for (I64 d = 0; d < kDim; ++d) {
      const double entry = cos_[row * kDim + d].value();
      turns.cos.push_back(angles_ ? std::cos(entry) : entry);
      turns.sin.push_back(angles_ ? std::sin(entry) : sin_[row * kDim + d].value());
      x.push_back(at(in_, offset, d).value());
    }
    const bool interleaved = form_of(variant_).style == ops::RopeStyle::kInterleaved;
    const Rotated want = rotate(x, turns, interleaved, !variant_.is_forward());
    for (I64 d = 0; d < kDim; ++d) {
      const auto i = static_cast<std::size_t>(d);
      EXPECT_LE(test::in_ulp<T>(at(out_, offset, d).value(), want.head[i],
                                2.7 * 0x1p-24 * want.magnitude[i]),
                0.5 + 0x1p-6)
          << "element " << d;
    }
  }

  static constexpr I64 kDim = 16;

 private:
  T& at(SparseTensor<T>& tensor, I64 offset, I64 d) {
    return tensor[offset + d * args_.q.in_strides.dim];
  }

  const Variant& variant_;
  const bool angles_;
  SparseTensor<T> in_;
  SparseTensor<T> out_;
  SparseTensor<U> cos_;
  SparseTensor<U> sin_;
  ops::RopeArguments args_;
};

TEST_P(LargeRope, IsRightForMoreThanTwoToThe31ElementsOfTokensAndTable) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    const I64 tokens = kLarge / 16 + 1000;
    LargeProblem<T, U> problem(GetParam(), {.sequence = 16, .head = 16}, tokens * 16,
                               tokens);
    problem.args().sequence = tokens;
    problem.fill((tokens - 1) * 16, tokens - 1);
    problem.run(2);
    problem.expect((tokens - 1) * 16, tokens - 1);
  });
}

TEST_P(LargeRope, IsRightForStridesBeyondTwoToThe31) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    for (const I64 odd : {0, 1}) {
      const I64 far = kLarge + 64 + odd;
      {
        LargeProblem<T, U> problem(GetParam(), {.batch = far}, far + 16, 1);
        problem.args().batch = 2;
        problem.fill(far, 0);
        problem.run();
        problem.expect(far, 0);
      }
      {
        LargeProblem<T, U> problem(GetParam(), {.head = far}, far + 16, 1);
        problem.args().q.heads = 2;
        problem.fill(far, 0);
        problem.run();
        problem.expect(far, 0);
      }
    }
    const I64 far = kLarge / 15 + 1;
    LargeProblem<T, U> problem(GetParam(), {.dim = far}, 15 * far + 1, 1);
    problem.fill(0, 0);
    problem.run();
    problem.expect(0, 0);
  });
}

}  // namespace
}  // namespace kiln::rope_test
