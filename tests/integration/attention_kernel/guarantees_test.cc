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
  std::vector<std::int32_t> lengths_q{};
  std::vector<std::int32_t> lengths_kv{};
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest calls it
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

Kind kind(const char* name, ops::DType dtype, I64 dqk, I64 dv,
          ops::AttentionProblem problem = {}, ComputeCapability capability = {9, 0}) {
  problem.heads = 2;
  problem.kv_heads = 1;
  problem.sq = 70;
  problem.skv = 90;
  problem.dqk = dqk;
  problem.dv = dv;
  problem.mask = Mask::kCausalBottomRight;
  Kind made{name, problem_of(dtype, problem), capability};
  made.problem.bias_gradient = problem.bias == Bias::kPostScale;
  return made;
}

/// Of sequences with lengths of their own, an empty one among them.
Kind of_lengths(const char* name, Layout layout) {
  Kind made{.name = name,
            .problem = problem_of({.dtype = ops::DType::kBf16,
                                   .batch = 3,
                                   .heads = 2,
                                   .kv_heads = 1,
                                   .sq = 70,
                                   .skv = 90,
                                   .dqk = 64,
                                   .layout = layout,
                                   .mask = Mask::kPaddingCausalBottomRight}),
            .lengths_q = {70, 0, 33},
            .lengths_kv = {20, 90, 64}};
  return made;
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
        of_lengths("bf16_padded", Layout::kBshd),
        of_lengths("bf16_packed", Layout::kThd),
        kind("bf16_window", ops::DType::kBf16, 64, 64, {.window_left = 20}),
        kind("bf16_plain", ops::DType::kBf16, 50, 30),
        kind("f16_plain", ops::DType::kF16, 33, 65),
        kind("f32", ops::DType::kF32, 50, 30),
        kind("f32_256", ops::DType::kF32, 256, 256),
        kind("f32_everything", ops::DType::kF32, 64, 64,
             {.bias = Bias::kPostScale, .dropout = 0.25})),
    [](const auto& one) { return one.param.name; });

TEST_P(AttentionGuarantees, TheSameBitsInEveryOrderAndAtEveryGuard) {
  test::with_type(GetParam().problem.dtype, [&]<typename T>() {
    std::vector<std::unique_ptr<Call<T>>> calls;
    for (const auto& [order, side] :
         {std::pair{Order::kAscending, kiln_cpu::Side::kEnd},
          {Order::kDescending, kiln_cpu::Side::kBegin},
          {Order::kShuffled, kiln_cpu::Side::kEnd}}) {
      calls.push_back(std::make_unique<Call<T>>(
          GetParam().problem, Setting{.lengths_q = GetParam().lengths_q,
                                      .lengths_kv = GetParam().lengths_kv,
                                      .capability = GetParam().capability,
                                      .order = order,
                                      .exact = side}));
      calls.back()->run_both();
    }
    expect_same_bits(*calls[0], *calls[1]);
    expect_same_bits(*calls[0], *calls[2]);
  });
}

}  // namespace
}  // namespace kiln::attention_test
