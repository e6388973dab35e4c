// The whole answer, beyond what program_attention_test asks of the program.

#include "attention/explain.h"

#include "tests/support/test.h"
#include "tests/unit/attention/problems.h"

namespace kiln::attention {
namespace {

/// NVIDIA/TransformerEngine #1276: Llama 7B, bf16, 4096 long.
Problem llama(Pass pass) {
  Problem problem = with_lengths(with_mask(base(pass), Mask::kCausal), 4096, 4096);
  problem.batch = 1;
  problem.heads = problem.kv_heads = 32;
  problem.layout = Layout::kSbhd;
  set_strides(problem);
  return problem;
}

Explanation ask(const Problem& problem, ComputeCapability arch, std::string_view cudnn,
                std::string_view mode = "") {
  ExplainOptions options;
  if (!mode.empty())
    options.parallelism = parse_context_parallelism(mode).value();
  return explain({problem, arch, version(cudnn)}, options);
}

TEST(Explain, DecidesOnTheStepsOfContextParallelism) {
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    const Explanation refused = ask(llama(pass), {9, 0}, "9.1", "all_gather:2");
    EXPECT_EQ(refused.chosen, Choice::kKiln);
    EXPECT_TRUE(refused.kiln.supported);
    EXPECT_EQ(refused.steps.size(), 4U);
    ASSERT_THAT(ids(refused.cudnn.refusals), ElementsAre("mask.causal_bottom_right"));
    EXPECT_THAT(refused.cudnn.refusals[0].remedy,
                AllOf(HasSubstr("upgrade cuDNN to 9.3.0"),
                      HasSubstr("split by p2p:2 or a2a:2, which cuDNN 9.1.0 runs")));
    EXPECT_EQ(refused.cudnn.first_supported, version("9.3"));
    for (const char* const mode : {"p2p:2", "a2a:2", "a2a+p2p:2x2"})
      EXPECT_EQ(ask(llama(pass), {9, 0}, "9.1", mode).chosen, Choice::kCudnn) << mode;
    EXPECT_EQ(ask(llama(pass), {9, 0}, "9.3", "all_gather:2").chosen, Choice::kCudnn);
    EXPECT_EQ(ask(llama(pass), {9, 0}, "9.1").chosen, Choice::kCudnn);
  }
}

TEST(Explain, HasNoStepsWhereTheProblemIsNotSplitThatWay) {
  const Explanation refused = ask(llama(Pass::kForward), {9, 0}, "9.19", "a2a:64");
  EXPECT_EQ(refused.chosen, Choice::kNone);
  EXPECT_THAT(refused.steps, IsEmpty());
  EXPECT_FALSE(refused.kiln.supported);
  EXPECT_THAT(refused.kiln.reason, HasSubstr("there is no step to run"));
  EXPECT_THAT(ids(refused.cudnn.refusals), ElementsAre("cp.heads"));
  EXPECT_THAT(refused.cudnn.refusals[0].remedy, HasSubstr("split by p2p:64"));
  EXPECT_EQ(refused.cudnn.first_supported, std::nullopt);
}

TEST(Explain, TellsTrainingFromInference) {
  Problem forward = with_dims(base(), 192, 128);
  EXPECT_THAT(ask(forward, {9, 0}, "9.1").cudnn.policies,
              Not(Contains(testing::Field(&Finding::id, "head_dim.backward.hopper"))));
  forward.training = true;
  const Explanation training = ask(forward, {9, 0}, "9.1");
  EXPECT_EQ(training.chosen, Choice::kCudnn);
  EXPECT_THAT(training.cudnn.policies,
              Contains(AllOf(testing::Field(&Finding::id, "head_dim.backward.hopper"),
                             testing::Field(&Finding::reason,
                                            HasSubstr("backward pass of this")))));
}

/// Of 2^25 tokens of 64 elements each.
Problem long_packed() {
  Problem problem = with_mask(base(), Mask::kPaddingCausal);
  problem.layout = Layout::kThd;
  problem.batch = 1 << 15;
  problem.heads = problem.kv_heads = 1;
  return with_dims(problem, 64, 64);
}

TEST(Explain, ChoosesKilnsKernelWherePackedSequencesBeginBeyond32Bits) {
  const Explanation most = ask(with_lengths(long_packed(), 1023, 1023), {9, 0}, "9.19");
  EXPECT_EQ(most.chosen, Choice::kCudnn);
  EXPECT_EQ(why_not_cudnn(most.steps.at(0).problem, {9, 0}, version("9.19")),
            std::nullopt);
  const Explanation more = ask(long_packed(), {9, 0}, "9.19");
  EXPECT_EQ(more.chosen, Choice::kKiln);
  EXPECT_TRUE(more.cudnn.supported);
  EXPECT_THAT(ids(more.cudnn.policies), Contains("offsets.32_bits"));
  EXPECT_EQ(why_not_cudnn(long_packed(), {9, 0}, version("9.19")).value().id,
            "offsets.32_bits");
}

// The rule asks for 9.5, with which Kiln builds no plans.
TEST(Explain, AnUpgradeOfACudnnThatIsNotAskedIsEnoughForKilnAndTheRules) {
  Problem backward = with_dims(base(), 192, 128);
  backward.pass = Pass::kBackward;
  const auto text = [&](ComputeCapability arch) {
    return why_not_cudnn(backward, arch, version("9.1")).value().text;
  };
  EXPECT_EQ(text({9, 0}),
            "cuDNN 9.1.0 is not asked: Kiln builds plans with cuDNN >= "
            "9.8.0; upgrade cuDNN to 9.8.0 or later");
  EXPECT_THAT(text({10, 0}), HasSubstr("; upgrade cuDNN to 9.11.0 or later"));
  EXPECT_THAT(text({8, 0}), HasSubstr("; and no known later version runs it"));
}

TEST(Explain, NamesTheRuleThatKeepsCudnnFromAProblemOrItsOtherPass) {
  Problem forward = with_dims(base(), 192, 128);
  forward.training = true;
  EXPECT_EQ(why_not_cudnn(forward, {8, 0}, version("9.19")), std::nullopt);
  forward.dropout = 0.1;
  const auto other = why_not_cudnn(forward, {8, 0}, version("9.19"));
  ASSERT_TRUE(other);
  EXPECT_EQ(other->id, "head_dim.backward.ampere");
  EXPECT_THAT(
      other->text,
      AllOf(HasSubstr("cuDNN 9.19.0 does not run it: head_dim"),
            HasSubstr("of the bwd pass, which must drop the same probabilities")));
}

}  // namespace
}  // namespace kiln::attention
