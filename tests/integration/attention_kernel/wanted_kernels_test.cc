// That no kernel is left out of the proofs: CMakeLists.txt lists those that run on the
// CPU, and the other tests run each of them.

#include "tests/support/kernels/wanted_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/attention_kernel/check.h"

namespace kiln::attention_test {
namespace {

TEST(AttentionKernels, IncludeEachThatADefaultSetAsksFor) {
  EXPECT_THAT(kiln_cpu::wanted_but_missing("attention"), testing::IsEmpty());
}

TEST(AttentionKernels, OfTheDefaultSetAreRightWithABiasAndDropout) {
  for (const auto& type_and_dqk :
       {std::pair{ops::DType::kBf16, 128}, {ops::DType::kF32, 100}}) {
    const auto check = [&](ops::AttentionProblem problem) {
      problem.heads = 2;
      problem.kv_heads = 1;
      problem.sq = 35;
      problem.skv = 70;
      problem.dqk = type_and_dqk.second;
      problem.mask = Mask::kCausalBottomRight;
      check_both(problem_of(type_and_dqk.first, problem));
    };
    check({.bias_kind = Bias::kPostScale});
    check({.bias_kind = Bias::kAlibi});
    check({.bias_kind = Bias::kBoolean});
    check({.dropout = 0.25});
  }
}

}  // namespace
}  // namespace kiln::attention_test
