// What every attention kernel keeps: the same bits in every order of its threads and
// with every content of shared memory, no access out of bounds.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/integration/attention_kernel/check.h"

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
  problem.heads = 2;
  problem.kv_heads = 1;
  problem.sq = 70;
  problem.skv = 90;
  problem.dqk = dqk;
  problem.dv = dv;
  problem.mask = Mask::kCausalBottomRight;
  problem.bias_gradient = problem.bias == Bias::kPostScale;
  return {name, problem_of(dtype, problem), capability};
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
    expect_same_bits(*calls[0], *calls[1]);
    expect_same_bits(*calls[0], *calls[2]);
  });
}

}  // namespace
}  // namespace kiln::attention_test
