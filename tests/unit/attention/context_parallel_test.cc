// Context parallelism: which problems each mode makes of one, and what it refuses.

#include "attention/context_parallel.h"

#include <fmt/format.h>

#include "tests/support/test.h"
#include "tests/unit/attention/problems.h"

namespace kiln::attention {
namespace {

ContextParallelism parallelism(std::string_view text) {
  return parse_context_parallelism(text).value();
}

/// 8 sequences of 4096, 32 heads of query, 8 of key and value.
Problem sequence(Mask mask, Layout layout = Layout::kSbhd) {
  Problem problem = with_lengths(with_mask(base(), mask), 4096, 4096);
  problem.heads = 32;
  problem.kv_heads = 8;
  problem.layout = layout;
  set_strides(problem);
  return problem;
}

/// "sq x skv mask heads/kv_heads" of each step.
std::vector<std::string> steps(const Problem& problem, std::string_view mode) {
  const Expansion expansion = expand(problem, parallelism(mode));
  EXPECT_THAT(ids(expansion.refusals), IsEmpty());
  std::vector<std::string> texts;
  for (const Problem& step : expansion.steps) {
    EXPECT_TRUE(step.stats);
    Problem contiguous = step;
    set_strides(contiguous);
    EXPECT_EQ(step, contiguous);
    texts.push_back(fmt::format("{}x{} {} {}/{}", step.sq, step.skv, word_of(step.mask),
                                step.heads, step.kv_heads));
  }
  return texts;
}

std::vector<std::string> refused(const Problem& problem, std::string_view mode) {
  const Expansion expansion = expand(problem, parallelism(mode));
  EXPECT_THAT(expansion.steps, IsEmpty());
  for (const Finding& each : expansion.refusals)
    EXPECT_FALSE(each.reason.empty() || each.remedy.empty()) << each.id;
  return ids(expansion.refusals);
}

TEST(ContextParallelism, IsReadAndWritten) {
  for (const char* const text : {"p2p:2", "a2a:8", "all_gather:4", "a2a+p2p:4x2"})
    EXPECT_EQ(to_string(parallelism(text)), text);
  EXPECT_EQ(parallelism("a2a+p2p:8"), parallelism("a2a+p2p:2x4"));
  for (const char* const text :
       {"", "p2p", "p2p:", "p2p:1", "p2p:0", "p2p:-2", "p2p:2x2", "ring:2", "p2p:x",
        "a2a+p2p:3", "a2a+p2p:2", "a2a+p2p:2x", "a2a+p2p:2x1", "p2p:99999999"})
    EXPECT_FALSE(parse_context_parallelism(text)) << text;
  EXPECT_THAT(parse_context_parallelism("allgather:2").error().message,
              HasSubstr("'all_gather'?"));
}

TEST(ContextParallelism, GoesAroundARingWithThreeProblemsOfACausalOne) {
  EXPECT_THAT(steps(sequence(Mask::kCausal), "p2p:2"),
              ElementsAre("2048x2048 causal 32/8", "2048x1024 none 32/8",
                          "1024x2048 none 32/8"));
  EXPECT_THAT(steps(sequence(Mask::kPaddingCausal, Layout::kThd), "p2p:4"),
              ElementsAre("1024x1024 padding_causal 32/8", "1024x512 padding 32/8",
                          "512x1024 padding 32/8"));
  EXPECT_THAT(steps(sequence(Mask::kNone), "p2p:4"),
              ElementsAre("1024x1024 none 32/8"));
}

TEST(ContextParallelism, GathersKeysAndMakesACausalMaskABottomRightOne) {
  EXPECT_THAT(steps(sequence(Mask::kCausal), "all_gather:2"),
              ElementsAre("1024x1024 causal_bottom_right 32/8",
                          "1024x2048 causal_bottom_right 32/8",
                          "1024x3072 causal_bottom_right 32/8",
                          "1024x4096 causal_bottom_right 32/8"));
  EXPECT_EQ(steps(sequence(Mask::kCausal), "all_gather:8").size(), 16U);
  EXPECT_THAT(steps(sequence(Mask::kNone), "all_gather:2"),
              ElementsAre("1024x4096 none 32/8"));
  EXPECT_THAT(steps(sequence(Mask::kPaddingCausal, Layout::kThd), "all_gather:2").at(0),
              "1024x1024 padding_causal_bottom_right 32/8");
}

TEST(ContextParallelism, ExchangesHeadsAndKeepsTheProblem) {
  EXPECT_THAT(steps(sequence(Mask::kCausal), "a2a:4"),
              ElementsAre("4096x4096 causal 8/2"));
  EXPECT_THAT(
      steps(sequence(Mask::kCausal), "a2a+p2p:2x4"),
      ElementsAre("1024x1024 causal 16/4", "1024x512 none 16/4", "512x1024 none 16/4"));
}

TEST(ContextParallelism, RefusesWhatAModeDoesNotTake) {
  Problem windowed = sequence(Mask::kCausal);
  windowed.window_left = 128;
  EXPECT_THAT(refused(windowed, "p2p:2"), ElementsAre("cp.window"));
  EXPECT_THAT(refused(windowed, "a2a+p2p:2x2"), ElementsAre("cp.window"));
  EXPECT_EQ(steps(windowed, "all_gather:2").size(), 4U);
  Problem biased = sequence(Mask::kCausal);
  biased.bias_kind = Bias::kPostScale;
  EXPECT_EQ(steps(biased, "p2p:2").size(), 3U);
  for (const char* const mode : {"a2a:2", "all_gather:2", "a2a+p2p:2x2"})
    EXPECT_THAT(refused(biased, mode), ElementsAre("cp.bias"));
  biased.bias_kind = Bias::kAlibi;
  EXPECT_THAT(refused(biased, "p2p:2"), ElementsAre("cp.alibi"));
  EXPECT_THAT(refused(sequence(Mask::kPadding), "all_gather:2"),
              ElementsAre("cp.padding"));
  EXPECT_THAT(refused(sequence(Mask::kPaddingCausal), "a2a:2"),
              ElementsAre("cp.padding"));
  EXPECT_THAT(refused(sequence(Mask::kCausal), "a2a:16"), ElementsAre("cp.heads"));
  EXPECT_THAT(refused(sequence(Mask::kCausalBottomRight), "p2p:2"),
              ElementsAre("cp.bottom_right"));
  EXPECT_THAT(refused(sequence(Mask::kCausal), "p2p:3"), ElementsAre("cp.length"));
  EXPECT_THAT(refused(with_lengths(sequence(Mask::kCausal), 4096, 2048), "p2p:2"),
              ElementsAre("cp.causal_lengths"));
}

}  // namespace
}  // namespace kiln::attention
