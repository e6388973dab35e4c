// The attention problem as a value: what is one, and with which strides.

#include "attention/problem.h"

#include "tests/support/test.h"
#include "tests/unit/attention/problems.h"

namespace kiln::attention {
namespace {

using ops::flattened;
using ops::Heads;

template <typename Edit>
std::string refused_after(Edit edit) {
  Problem problem = base();
  edit(problem);
  const auto valid = validate(problem);
  EXPECT_FALSE(valid) << to_string(problem);
  return valid ? "" : valid.error().message;
}

TEST(Problem, NamesTheFieldOfWhatIsWrong) {
  EXPECT_THAT(refused_after([](Problem& p) { p.batch = 0; }),
              HasSubstr("problem.batch: 0"));
  EXPECT_THAT(refused_after([](Problem& p) { p.dv = -8; }),
              HasSubstr("problem.dv: -8"));
  EXPECT_THAT(refused_after([](Problem& p) { p.skv = std::int64_t{1} << 40; }),
              HasSubstr("problem.skv"));
  EXPECT_THAT(refused_after([](Problem& p) { p.kv_heads = 5; }),
              HasSubstr("problem.kv_heads: 16"));
  EXPECT_THAT(refused_after([](Problem& p) { p.kv_heads = 32; }),
              HasSubstr("problem.kv_heads"));
  EXPECT_THAT(refused_after([](Problem& p) { p.window_left = -2; }),
              HasSubstr("problem.window_left"));
  EXPECT_THAT(refused_after([](Problem& p) {
                p.mask = Mask::kCausal;
                p.window_right = 3;
              }),
              HasSubstr("problem.window_right: a causal mask"));
  EXPECT_THAT(refused_after([](Problem& p) { p.dropout = 1.5; }),
              HasSubstr("problem.dropout"));
  EXPECT_THAT(refused_after([](Problem& p) { p.dropout = std::stod("nan"); }),
              HasSubstr("problem.dropout"));
  EXPECT_THAT(refused_after([](Problem& p) { p.dtype = DType::kUnset; }),
              HasSubstr("problem.dtype"));
  EXPECT_THAT(refused_after([](Problem& p) { p.dtype = static_cast<DType>(4); }),
              HasSubstr("problem.dtype"));
  EXPECT_THAT(refused_after([](Problem& p) { p.layout = static_cast<Layout>(4); }),
              HasSubstr("problem.layout"));
  EXPECT_THAT(refused_after([](Problem& p) { p.mask = static_cast<Mask>(200); }),
              HasSubstr("problem.mask"));
  EXPECT_THAT(refused_after([](Problem& p) { p.bias_kind = static_cast<Bias>(4); }),
              HasSubstr("problem.bias_kind"));
  EXPECT_THAT(refused_after([](Problem& p) { p.pass = Pass::kBackward; }),
              HasSubstr("problem.training"));
  EXPECT_THAT(refused_after([](Problem& p) { p.batch = p.sq = std::int64_t{1} << 31; }),
              HasSubstr("2^53"));
}

TEST(Problem, HasTheStridesOfItsLayout) {
  Problem problem = base();  // 2 sequences, 16 heads, 1024 long, 128 wide
  problem.dv = 64;
  problem.kv_heads = 4;
  set_strides(problem);
  EXPECT_EQ(problem.q, (Strides{1024 * 16 * 128, 128, 16 * 128, 1}));
  EXPECT_EQ(problem.k, (Strides{1024 * 4 * 128, 128, 4 * 128, 1}));
  EXPECT_EQ(problem.v, (Strides{1024 * 4 * 64, 64, 4 * 64, 1}));
  EXPECT_EQ(problem.o, (Strides{1024 * 16 * 64, 64, 16 * 64, 1}));
  problem.layout = Layout::kSbhd;
  set_strides(problem);
  EXPECT_EQ(problem.q, (Strides{16 * 128, 128, 2 * 16 * 128, 1}));
  problem.layout = Layout::kBhsd;
  set_strides(problem);
  EXPECT_EQ(problem.q, (Strides{16 * 1024 * 128, 1024 * 128, 128, 1}));
  problem.layout = Layout::kThd;
  set_strides(problem);
  EXPECT_EQ(problem.q, (Strides{0, 128, 16 * 128, 1}));
}

TEST(Problem, HasNoStridesWithASizeThatItCannotHave) {
  for (std::int64_t Problem::*const size :
       {&Problem::batch, &Problem::heads, &Problem::kv_heads, &Problem::sq,
        &Problem::skv, &Problem::dqk, &Problem::dv}) {
    for (const std::int64_t wrong : {ops::kUnsetSize, std::int64_t{1} << 62}) {
      Problem problem = base();
      problem.*size = wrong;
      set_strides(problem);
      for (const Strides& each : {problem.q, problem.k, problem.v, problem.o})
        EXPECT_EQ(each, Strides{});
      EXPECT_FALSE(validate(problem));
    }
  }
}

TEST(Problem, IsTheSameWithGroupedHeadsInFiveDimensionsAndInFour) {
  // Query [batch, length, 4 groups, 4 heads, 128]: the 16 heads of [batch, length, 16,
  // 128]. The key, expanded over the heads of a group with stride 0, has 4.
  EXPECT_EQ(flattened({4, 4, 4 * 128, 128}).value(), (Heads{16, 128}));
  EXPECT_EQ(flattened({4, 4, 128, 0}).value(), (Heads{4, 128}));
  EXPECT_EQ(flattened({1, 8, 999, 128}).value(), (Heads{8, 128}));
  EXPECT_EQ(flattened({8, 1, 128, 999}).value(), (Heads{8, 128}));
  // Cut out of a tensor that has key and value behind the heads of each group.
  EXPECT_EQ(flattened({4, 4, 6 * 128, 128}).value(), (Heads{16, 128, 6 * 128}));
  // [batch, length, heads of a group, groups, 128].
  EXPECT_EQ(flattened({4, 2, 128, 4 * 128}).value(), (Heads{8, 4 * 128, 128}));
  EXPECT_FALSE(flattened({0, 4, 1, 1}));
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_FALSE(flattened({4, kHuge, 1, 1}));
  EXPECT_FALSE(flattened({kHuge, 4, 1, 1}));
  EXPECT_FALSE(flattened({4, 4, 4, kHuge}));
  EXPECT_FALSE(flattened({4, 4, -512, -128}));
}

TEST(Problem, TellsAWindowFromWhatTheMaskSaysAnyhow) {
  Problem problem = with_mask(base(), Mask::kCausal);
  EXPECT_FALSE(has_window(problem));
  EXPECT_EQ(right_bound(problem), 0);
  problem.window_right = 0;
  EXPECT_FALSE(has_window(problem));
  problem.window_left = 128;
  EXPECT_TRUE(has_window(problem));
  problem = base();
  EXPECT_EQ(right_bound(problem), -1);
  problem.window_right = 0;
  EXPECT_TRUE(has_window(problem));
}

TEST(Problem, HasAGradientOfABiasOnlyBackwardAndOfAPostScaleBias) {
  Problem problem = base(Pass::kBackward);
  problem.bias_gradient = true;
  EXPECT_THAT(validate(problem).error().message,
              AllOf(HasSubstr("options.bias_gradient"), HasSubstr("not of none")));
  for (const Bias other : {Bias::kAlibi, Bias::kBoolean}) {
    problem.bias_kind = other;
    EXPECT_FALSE(validate(problem));
  }
  problem.bias_kind = Bias::kPostScale;
  EXPECT_TRUE(validate(problem));
  EXPECT_THAT(to_string(problem), HasSubstr("bias post_scale bias_gradient"));
  problem.pass = Pass::kForward;
  EXPECT_THAT(validate(problem).error().message, HasSubstr("no gradients"));
}

TEST(Problem, HasStridesOfABiasOnlyWithOneAndWithRowsWhereItHasAGradient) {
  Problem problem = base(Pass::kBackward);
  problem.bias = {.batch = 64, .dim = 1};
  const auto refused = [&] { return validate(problem).error().message; };
  EXPECT_THAT(refused(), HasSubstr("problem.bias: strides are those of a post_scale"));
  problem.bias_kind = Bias::kBoolean;
  EXPECT_TRUE(validate(problem));
  problem.bias_kind = Bias::kPostScale;
  EXPECT_TRUE(validate(problem));
  EXPECT_EQ(bias_strides(problem), problem.bias);
  problem.bias_gradient = true;
  EXPECT_THAT(refused(), HasSubstr("alike for all queries has no gradient"));
  problem.bias.sequence = problem.skv;
  EXPECT_TRUE(validate(problem));
  for (const Strides& wrong : {Strides{.batch = 64}, Strides{.batch = 64, .dim = 2},
                               Strides{.dim = 1, .group = 1}}) {
    problem.bias = wrong;
    EXPECT_THAT(refused(), HasSubstr("the last dimension is contiguous"));
  }
  problem.bias = {.head = std::int64_t{1} << 53, .dim = 1};
  EXPECT_THAT(refused(), HasSubstr("bias has the strides"));
  problem.bias = {};
  EXPECT_EQ(
      bias_strides(problem),
      (Strides{.head = problem.sq * problem.skv, .sequence = problem.skv, .dim = 1}));
}

TEST(Problem, ReadsItsWordsAndAnswersOthersWithTheNearest) {
  for (const std::string_view word : words_of<Mask>())
    EXPECT_EQ(word_of(parse_word<Mask>(word).value()), word);
  for (const std::string_view word : words_of<DType>())
    EXPECT_EQ(word_of(parse_word<DType>(word).value()), word);
  EXPECT_EQ(word_of(DType::kUnset), "unset");
  EXPECT_FALSE(parse_word<DType>("unset"));
  EXPECT_THAT(parse_word<Mask>("casual").error().message, HasSubstr("'causal'?"));
  EXPECT_THAT(parse_word<Layout>("bsdh").error().message,
              HasSubstr("bshd, sbhd, bhsd, thd"));
  EXPECT_FALSE(parse_word<Pass>("forward"));
}

}  // namespace
}  // namespace kiln::attention
