// What every attention kernel keeps: the same bits in every order of its threads and
// with every content of shared memory, no access out of bounds, offsets beyond 32 bits.

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "tests/integration/attention_kernel/check.h"
#include "tests/support/cpu_kernel/run_plan.h"
#include "tests/support/tensors/sparse_tensor.h"

namespace kiln::attention_test {
namespace {

struct Kind {
  const char* name;
  Problem problem;
  ComputeCapability capability{9, 0};
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest calls it
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

Kind kind(const char* name, ops::DType dtype, I64 dqk, I64 dv, Problem problem = {},
          ComputeCapability capability = {9, 0}) {
  problem.dtype = dtype;
  problem.heads = 2;
  problem.kv_heads = 1;
  problem.sq = 70;
  problem.skv = 90;
  problem.dqk = dqk;
  problem.dv = dv;
  problem.mask = Mask::kCausalBottomRight;
  problem.bias_gradient = problem.bias == Bias::kPostScale;
  return {name, problem_of(problem), capability};
}

class AttentionGuarantees : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(
    Kernels, AttentionGuarantees,
    testing::Values(
        kind("bf16_64", ops::DType::kBf16, 64, 64),
        kind("f16_128", ops::DType::kF16, 128, 128),
        kind("f16_256_small", ops::DType::kF16, 256, 256, {}, {7, 5}),
        kind("bf16_192_128", ops::DType::kBf16, 192, 128),
        kind("bf16_alibi", ops::DType::kBf16, 64, 64, {.bias = Bias::kAlibi}),
        kind("bf16_bias", ops::DType::kBf16, 64, 64, {.bias = Bias::kPostScale}),
        kind("bf16_dropout", ops::DType::kBf16, 64, 64, {.dropout = 0.5}),
        kind("f32", ops::DType::kF32, 50, 30),
        kind("f32_256", ops::DType::kF32, 256, 256),
        kind("f32_everything", ops::DType::kF32, 64, 64,
             {.bias = Bias::kPostScale, .dropout = 0.25})),
    [](const auto& one) { return one.param.name; });

TEST_P(AttentionGuarantees, TheSameBitsInEveryOrderAndAtEveryGuard) {
  test::with_type(ops::to_string(GetParam().problem.dtype), [&]<typename T>(
                                                                std::type_identity<T>) {
    std::vector<std::unique_ptr<Call<T>>> calls;
    for (const auto& [order, side] :
         {std::pair{Order::kAscending, kiln_cpu::Side::kEnd},
          {Order::kDescending, kiln_cpu::Side::kBegin},
          {Order::kShuffled, kiln_cpu::Side::kEnd}}) {
      calls.push_back(std::make_unique<Call<T>>(
          GetParam().problem,
          Setting{.capability = GetParam().capability, .order = order, .exact = side}));
      calls.back()->run_both();
    }
    for (const std::size_t other : {1U, 2U}) {
      Call<T>& a = *calls[0];
      Call<T>& b = *calls[other];
      EXPECT_TRUE(same_bits(a.o(), b.o()));
      EXPECT_TRUE(same_bits(a.stats(), b.stats()));
      EXPECT_TRUE(same_bits(a.grad_q(), b.grad_q()));
      EXPECT_TRUE(same_bits(a.grad_k(), b.grad_k()));
      EXPECT_TRUE(same_bits(a.grad_v(), b.grad_v()));
      EXPECT_TRUE(same_bits(a.grad_bias(), b.grad_bias()));
    }
  });
}

/// Tensors whose rows are so far apart that an offset of 32 bits would wrap.
template <typename T>
void check_far_apart(ops::DType dtype) {
  constexpr I64 kFar = I64{1} << 32U;
  constexpr I64 kRows = 3;
  constexpr I64 kDim = 32;
  const Problem near =
      problem_of({.dtype = dtype, .heads = 1, .sq = kRows, .skv = kRows, .dqk = kDim});
  Call<T> expected(near);
  expected.run_both();
  Problem far = expected.problem;
  for (Strides* const strides : {&far.q, &far.k, &far.v, &far.o})
    strides->sequence = kFar;
  std::array<std::unique_ptr<test::SparseTensor<T>>, 8> tensors;
  const std::array<const Tensor<T>*, 5> inputs{
      &expected.q(), &expected.k(), &expected.v(), &expected.grad_o(), &expected.o()};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i] = std::make_unique<test::SparseTensor<T>>("far", kRows * kFar, kFar);
    for (I64 row = 0; row < kRows && i < 4; ++row) {
      for (I64 d = 0; d < kDim; ++d)
        (*tensors[i])[row * kFar + d] =
            (*inputs[i])[static_cast<std::size_t>(row * kDim + d)];
    }
  }
  ops::AttentionTensors with = expected.tensors();
  std::vector<float> stats(kRows), delta(kRows);
  with.q = tensors[0]->data();
  with.k = tensors[1]->data();
  with.v = tensors[2]->data();
  with.grad_o = tensors[3]->data();
  with.o = tensors[4]->data();
  with.grad_q = tensors[5]->data();
  with.grad_k = tensors[6]->data();
  with.grad_v = tensors[7]->data();
  with.stats = stats.data();
  with.workspace = delta.data();
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    far.pass = pass;
    auto planned = ops::plan({far, with}, kiln_cpu::planned_device());
    ASSERT_TRUE(planned) << planned.error().message;
    const auto done =
        kiln_cpu::run_plan(*std::move(planned), kiln_cpu::kernels_of_program());
    ASSERT_TRUE(done) << done.error().message;
  }
  const std::array<const Tensor<T>*, 4> results{&expected.o(), &expected.grad_q(),
                                                &expected.grad_k(), &expected.grad_v()};
  for (std::size_t i = 0; i < results.size(); ++i) {
    for (I64 row = 0; row < kRows; ++row) {
      for (I64 d = 0; d < kDim; ++d)
        EXPECT_EQ((*tensors[4 + i])[row * kFar + d].value(),
                  (*results[i])[static_cast<std::size_t>(row * kDim + d)].value());
    }
  }
}

TEST(AttentionGuarantees, OffsetsHave64Bits) {
  check_far_apart<test::Bf16>(ops::DType::kBf16);
  check_far_apart<test::F32>(ops::DType::kF32);
}

}  // namespace
}  // namespace kiln::attention_test
