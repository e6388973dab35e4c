// The evaluator: every refusal is told, policies decide nothing, and a remedy is
// offered only where it helps.

#include "attention/evaluate.h"

#include "tests/support/test.h"
#include "tests/unit/attention/problems.h"

namespace kiln::attention {
namespace {

TEST(Evaluate, TellsEveryRefusalAndNotOnlyTheFirst) {
  Problem problem = with_dims(base(Pass::kBackward), 192, 128);
  problem.mask = Mask::kCausalBottomRight;
  problem.kv_heads = 4;
  EXPECT_THAT(refusals(problem, {9, 0}, "8.9.0"),
              ElementsAre("heads.grouped", "head_dim.backward.hopper",
                          "mask.before_8_9_6", "mask.causal_bottom_right"));
}

TEST(Evaluate, ShowsPoliciesAndLetsThemDecideNothing) {
  Problem problem = base();
  problem.dropout = 0.1;
  const Verdict verdict = evaluate(problem, {9, 0}, version("9.19"));
  EXPECT_TRUE(verdict.supported);
  EXPECT_THAT(verdict.refusals, IsEmpty());
  EXPECT_THAT(ids(verdict.policies), ElementsAre("dropout.pytorch"));
}

TEST(Evaluate, FindsTheFirstVersionThatNothingRefuses) {
  Problem problem = with_mask(base(), Mask::kPaddingCausalBottomRight);
  problem.layout = Layout::kThd;
  set_strides(problem);
  EXPECT_EQ(evaluate(problem, {9, 0}, version("9.0")).first_supported, version("9.6"));
  EXPECT_EQ(evaluate(problem, {8, 0}, version("9.0")).first_supported,
            version("9.18.1"));
  EXPECT_EQ(evaluate(problem, {7, 5}, version("9.0")).first_supported, std::nullopt);
  EXPECT_EQ(evaluate(problem, {9, 0}, version("9.6")).first_supported, std::nullopt);
}

TEST(Evaluate, UpgradesToNoVersionThatRefusesForAnotherReason) {
  // 9.14.1 and 9.15.0 end the first bug and have the second.
  Problem problem = base(Pass::kBackward);
  problem.skv = 2000;
  problem.window_left = 128;
  problem.capture = true;
  set_strides(problem);
  const Finding found = finding(problem, {9, 0}, "9.14.0", "window.9_14_0");
  EXPECT_THAT(found.remedy, HasSubstr("upgrade cuDNN to 9.15.0"));
  // Unequal head dimensions are fine from 9.5.0 on, but a bug from 9.11.0 on.
  EXPECT_THAT(refusals(with_dims(base(Pass::kBackward), 192, 160), {9, 0}, "9.5"),
              IsEmpty());
}

TEST(Evaluate, PadsVOnlyWhereThatIsRight) {
  const Problem unequal = with_dims(base(Pass::kBackward), 192, 160);
  constexpr const char* kPad = "pad V with zeros";
  const Finding hopper =
      finding(unequal, {9, 0}, "9.11", "head_dim.backward.hopper.unequal");
  EXPECT_EQ(hopper.kind, RuleKind::kKnownBug);
  EXPECT_THAT(hopper.remedy, HasSubstr(kPad));
  const Finding early = finding(unequal, {9, 0}, "9.1", "head_dim.backward.hopper");
  EXPECT_THAT(early.remedy,
              AllOf(HasSubstr("upgrade cuDNN to 9.5.0"), Not(HasSubstr("pad"))));
  const Finding blackwell =
      finding(unequal, {10, 0}, "9.19", "head_dim.backward.blackwell.other");
  EXPECT_THAT(blackwell.remedy, Not(HasSubstr("pad")));
  // 192 with 128 is there on Blackwell; what fits into it may be padded to it.
  EXPECT_THAT(refusals(with_dims(base(Pass::kBackward), 192, 128), {10, 0}, "9.19"),
              IsEmpty());
  EXPECT_THAT(refusals(with_dims(base(Pass::kBackward), 192, 192), {10, 0}, "9.19"),
              Contains("head_dim.backward.blackwell.other"));
  EXPECT_THAT(finding(with_dims(base(Pass::kBackward), 160, 128), {10, 0}, "9.19",
                      "head_dim.backward.blackwell.other")
                  .remedy,
              HasSubstr("pad Q and K to 192 and V to 128"));
}

TEST(Evaluate, OffersAChangeOnlyWhereTheChangedProblemRuns) {
  Problem problem = base(Pass::kBackward);
  problem.sq = problem.skv = 1000;
  problem.capture = true;
  set_strides(problem);
  constexpr const char* kId = "sequence.multiple_of_128.capture";
  EXPECT_THAT(finding(problem, {9, 0}, "9.5", kId).remedy,
              HasSubstr("by a padding mask"));
  problem.mask = Mask::kCausalBottomRight;
  EXPECT_THAT(finding(problem, {9, 0}, "9.6", kId).remedy,
              HasSubstr("padding_causal_bottom_right"));
  problem.mask = Mask::kNone;
  problem.bias_kind = Bias::kPostScale;  // which padding masks exclude
  EXPECT_THAT(finding(problem, {9, 0}, "9.5", kId).remedy,
              AllOf(Not(HasSubstr("padding")), HasSubstr("outside CUDA graphs")));
}

TEST(Evaluate, WithDropoutAsksForTheGradientOfABiasOnlyWhereItHasOne) {
  Problem problem = base();
  problem.dropout = 0.1;
  problem.bias_kind = Bias::kPostScale;
  const auto wants_gradient = [&] {
    const auto both = run_together(problem);
    EXPECT_TRUE(validate(both.at(1)));
    return both.at(1).bias_gradient;
  };
  EXPECT_TRUE(wants_gradient());
  problem.bias = {.batch = 64, .sequence = 64, .dim = 1};
  EXPECT_TRUE(wants_gradient());
  problem.bias.sequence = 0;  // alike for all queries
  EXPECT_FALSE(wants_gradient());
}

// Every remedy of every rule that can be met somewhere is meant for somebody: whatever
// is asked, there is something to do.
TEST(Evaluate, AlwaysHasARemedy) {
  for (const ComputeCapability arch :
       {ComputeCapability{7, 5}, {8, 6}, {9, 0}, {10, 0}, {10, 3}, {12, 0}, {13, 0}}) {
    for (const char* const cudnn : {"8.9.0", "9.1", "9.10.0", "9.14.0", "9.21"}) {
      for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
        Problem problem = with_dims(base(pass), 204, 100);
        problem.deterministic = true;
        problem.window_left = 64;
        problem.dropout = 0.5;
        problem.bias_kind = Bias::kAlibi;
        const Verdict verdict = evaluate(problem, arch, version(cudnn));
        EXPECT_FALSE(verdict.supported);
        for (const Finding& each : verdict.refusals)
          EXPECT_THAT(each.remedy, Not(IsEmpty())) << each.id;
      }
    }
  }
}

}  // namespace
}  // namespace kiln::attention
