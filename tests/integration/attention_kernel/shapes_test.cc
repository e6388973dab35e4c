// Attention's kernels against double: types, head dimensions, masks, layouts, lengths.

#include <gtest/gtest.h>

#include "tests/integration/attention_kernel/errors.h"

namespace kiln::attention_test {
namespace {

template <typename T>
void check_both(const Problem& problem, const Setting& setting = {}) {
  SCOPED_TRACE(to_string(problem));
  Problem with = problem;
  with.bias_gradient = problem.bias == Bias::kPostScale;
  Run<T> run(with, setting);
  run.run_both();
  if (!testing::Test::HasFatalFailure())
    check(run, true);
}

TEST(AttentionShapes, Smoke) {
  check_both<test::F32>(problem_of({.dtype = ops::DType::kF32, .batch = 1, .heads = 2, .kv_heads = 1, .sq = 37, .skv = 50, .dqk = 24}));
  check_both<test::Bf16>(problem_of({.dtype = ops::DType::kBf16, .batch = 1, .heads = 2, .kv_heads = 1, .sq = 70, .skv = 100, .dqk = 64}));
  check_both<test::F16>(problem_of({.dtype = ops::DType::kF16, .batch = 1, .heads = 2, .kv_heads = 1, .sq = 70, .skv = 100, .dqk = 128, .mask=Mask::kCausal}));
}

}  // namespace
}  // namespace kiln::attention_test
