// Refusals that users met, by the threads in which they were published.

#include "tests/support/test.h"
#include "tests/unit/attention/problems.h"

namespace kiln::attention {
namespace {

// NVIDIA/TransformerEngine #1591: H100, fp16, sbhd, 192 with 128, causal, training.
TEST(PublishedCases, BackwardWithAHeadDimensionOver128OnHopper) {
  Problem problem = with_dims(base(Pass::kBackward), 192, 128);
  problem.dtype = DType::kF16;
  problem.layout = Layout::kSbhd;
  problem.mask = Mask::kCausal;
  set_strides(problem);
  const Finding found = finding(problem, {9, 0}, "9.1", "head_dim.backward.hopper");
  EXPECT_THAT(found.remedy, HasSubstr("upgrade cuDNN to 9.5.0 or later"));
  EXPECT_THAT(found.remedy, Not(HasSubstr("pad")));
  EXPECT_THAT(refusals(problem, {9, 0}, "9.5"), IsEmpty());
  EXPECT_THAT(refusals(problem, {9, 0}, "9.19"), IsEmpty());  // the bug's exemption
  problem.pass = Pass::kForward;
  EXPECT_THAT(refusals(problem, {9, 0}, "9.1"), IsEmpty());
}

// NVIDIA/TransformerEngine #1276: what all_gather asks of the second rank's last chunk.
TEST(PublishedCases, BottomRightMaskOfLlama7B) {
  Problem problem = with_lengths(base(), 1024, 4096);
  problem.heads = problem.kv_heads = 32;
  problem.mask = Mask::kCausalBottomRight;
  set_strides(problem);
  EXPECT_THAT(refusals(problem, {9, 0}, "9.1"), Contains("mask.causal_bottom_right"));
  EXPECT_EQ(evaluate(problem, {9, 0}, version("9.1")).first_supported, version("9.3"));
  EXPECT_THAT(refusals(problem, {9, 0}, "9.3"), IsEmpty());
}

// jax-ml/jax #27599: two GPUs in one process, in CUDA graphs.
TEST(PublishedCases, OnePlanForTwoGpusInCudaGraphs) {
  Problem problem = base();
  problem.capture = true;
  const Finding found = finding(problem, {8, 6}, "9.1", "capture.jax.devices");
  EXPECT_THAT(found.remedy, HasSubstr("9.8.0"));
  EXPECT_TRUE(evaluate(problem, {8, 6}, version("9.1")).supported);
  EXPECT_THAT(evaluate(problem, {8, 6}, version("9.8")).policies, IsEmpty());
}

}  // namespace
}  // namespace kiln::attention
