// Each rule at its edges: what it refuses, and what differs by one version, one
// architecture or one property and is supported.

#include "tests/support/attention_words.h"
#include "tests/support/print_name.h"
#include "tests/support/test.h"
#include "tests/unit/attention/problems.h"

namespace kiln::attention {
namespace {

using test::PrintTo;

void expect_refused(const std::string& text, const char* rule) {
  const RuleQuestion asked = test::question(text);
  EXPECT_THAT(ids(built_in_rules().evaluate(asked).refusals), Contains(rule)) << text;
}

void expect_supported(const std::string& text) {
  EXPECT_THAT(ids(built_in_rules().evaluate(test::question(text)).refusals), IsEmpty())
      << text;
}

template <typename Edge>
std::string name_of(const testing::TestParamInfo<Edge>& info) {
  return info.param.name;
}

/// The last version that the rule refuses, and the next.
struct VersionEdge {
  const char* name;
  const char* rule;
  const char* arch;
  const char* problem;
  const char* below;
  const char* at;
};

class VersionEdges : public testing::TestWithParam<VersionEdge> {};

TEST_P(VersionEdges, AreWhereTheRuleSaysAndAnUpgradeIsOffered) {
  const auto& [name, rule, arch, problem, below, at] = GetParam();
  const auto text = [&, a = arch, p = problem](const char* cudnn) {
    return std::string(a) + ' ' + cudnn + ' ' + p;
  };
  expect_refused(text(below), rule);
  expect_supported(text(at));
  const RuleQuestion asked = test::question(text(below));
  EXPECT_THAT(finding(asked.problem, asked.arch, below, rule).remedy,
              HasSubstr("upgrade cuDNN"));
}

// clang-format off
constexpr VersionEdge kVersionEdges[] = {
    {"FirstOfAll", "version.first", "8.0", "causal", "8.8.9", "8.9.0"},
    {"FirstOfAllBackward", "version.first", "9.0", "bwd causal", "8.8.9", "8.9.0"},
    {"Ampere86", "arch.ampere_and_ada", "8.6", "causal", "8.9.2", "8.9.3"},
    {"Ada", "arch.ampere_and_ada", "8.9", "bwd causal", "8.9.2", "8.9.3"},
    {"Blackwell", "arch.blackwell", "10.0", "", "9.6.9", "9.7.0"},
    {"BlackwellBackward", "arch.blackwell", "10.0", "bwd", "9.6.9", "9.7.0"},
    {"Integrated11", "arch.blackwell", "11.0", "", "9.6.9", "9.7.0"},
    {"Blackwell103", "arch.10_3", "10.3", "", "9.10.2", "9.11.0"},
    {"Blackwell103Backward", "arch.10_3", "10.3", "bwd", "9.10.9", "9.11.0"},
    {"Blackwell120", "arch.12", "12.0", "", "9.18.0", "9.18.1"},
    {"Blackwell120Backward", "arch.12", "12.0", "bwd", "9.18.0", "9.18.1"},
    {"Blackwell121", "arch.12", "12.1", "", "9.18.0", "9.18.1"},
    {"KnownBugsOf910", "version.9_10_0", "9.0", "", "9.10.1", "9.10.2"},
    {"KnownBugsOf910OnAmpere", "version.9_10_0", "8.0", "bwd", "9.10.0", "9.10.2"},

    {"Forward256OnAmpere", "head_dim.forward.ampere", "8.0", "d=256", "9.9.0", "9.10.2"},
    {"Forward192OnAda", "head_dim.forward.ampere", "8.9", "d=192/128", "9.9.0", "9.10.2"},
    {"Forward512OnAmpere86", "head_dim.forward.ampere", "8.6", "d=576/512", "9.9.0", "9.10.2"},
    {"Forward256OnHopper", "head_dim.forward.hopper", "9.0", "d=256", "9.0.0", "9.1.0"},
    {"Forward136OnHopper", "head_dim.forward.hopper", "9.0", "d=136", "9.0.0", "9.1.0"},
    {"Forward264OnHopper", "head_dim.forward.hopper.over_256", "9.0", "d=264", "9.9.0", "9.10.2"},
    {"Forward512OnHopper", "head_dim.forward.hopper.over_256", "9.0", "d=576/512", "9.9.0", "9.10.2"},
    {"Forward192OnBlackwell", "head_dim.forward.blackwell", "10.0", "d=192/128", "9.8.0", "9.9.0"},
    {"DecodeOnBlackwell", "head_dim.forward.blackwell.decode", "10.0", "d=192/128 s=1/1024", "9.9.0", "9.10.2"},
    {"Backward192OnHopper", "head_dim.backward.hopper", "9.0", "bwd f16 d=192/128 causal", "9.4.0", "9.5.0"},
    {"Backward256OnHopper", "head_dim.backward.hopper", "9.0", "bwd d=256", "9.4.9", "9.5.0"},
    {"Backward192OnBlackwell", "head_dim.backward.blackwell.192_128", "10.0", "bwd d=192/128", "9.10.2", "9.11.0"},
    {"Backward256OnBlackwell", "head_dim.backward.blackwell.256", "10.0", "bwd d=256", "9.22.0", "9.23.0"},
    {"Backward256OnBlackwell103", "head_dim.backward.blackwell.256", "10.3", "bwd d=256 causal", "9.22.9", "9.23.0"},
    {"Backward256ThdOnBlackwell", "head_dim.backward.blackwell.256.thd", "10.0", "bwd d=256 thd padding", "9.24.0", "9.25.0"},

    {"NoMask", "mask.before_8_9_6", "9.0", "", "8.9.5", "8.9.6"},
    {"Padding", "mask.before_8_9_6", "8.0", "bwd padding", "8.9.5", "8.9.6"},
    {"BottomRight", "mask.causal_bottom_right", "8.0", "causal_bottom_right", "9.2.0", "9.3.0"},
    {"BottomRightOnAda", "mask.causal_bottom_right", "8.9", "bwd causal_bottom_right", "9.2.9", "9.3.0"},
    {"BottomRightOfLlama7B", "mask.causal_bottom_right", "9.0", "causal_bottom_right heads=32 s=1024/4096", "9.1.0", "9.3.0"},
    {"PaddingBottomRight", "mask.padding_causal_bottom_right", "9.0", "padding_causal_bottom_right", "9.5.0", "9.6.0"},
    {"BottomRightOf1000", "mask.bottom_right.multiple_of_64", "9.0", "causal_bottom_right s=100/200", "9.5.0", "9.6.0"},
    {"LengthsOf1000", "sequence.multiple_of_64", "9.0", "s=100/200", "8.9.7", "9.0.0"},
    {"LengthsOf1000OnAmpere", "sequence.multiple_of_64", "8.0", "bwd s=1024/1000", "8.9.7", "9.0.0"},
    {"DecodeBottomRight", "sequence.decode.right_bound", "9.0", "causal_bottom_right s=1/1024", "9.9.0", "9.10.2"},
    {"CapturedBackward", "sequence.multiple_of_128.capture", "9.0", "bwd capture s=1024/1000", "9.15.0", "9.15.1"},
    {"CapturedBackwardOnAmpere86", "sequence.multiple_of_128.capture", "8.6", "bwd capture causal s=192", "9.15.0", "9.15.1"},

    {"Window", "window.first", "9.0", "causal window=64,0", "9.1.0", "9.2.0"},
    {"WindowWithPadding", "window.before_9_6", "8.0", "padding_causal window=64,0", "9.5.0", "9.6.0"},
    {"WindowInBhsd", "window.before_9_6", "9.0", "bwd causal bhsd window=64,0", "9.5.0", "9.6.0"},
    {"WindowToTheRight", "window.right", "9.0", "window=-1,64", "9.5.0", "9.6.0"},
    {"WindowToBothSides", "window.features", "9.0", "window=64,64", "9.9.0", "9.10.2"},
    {"WindowWithDropout", "window.features", "8.0", "bwd causal window=64,0 dropout=0.125", "9.9.0", "9.10.2"},
    {"WindowWithBias", "window.features", "10.0", "causal window=64,0 post_scale", "9.9.0", "9.10.2"},
    {"WindowBottomRightOnHopper", "window.bottom_right.hopper", "9.0", "causal_bottom_right window=64,0", "9.9.0", "9.10.2"},
    {"WindowBottomRightOnBlackwell", "window.bottom_right.blackwell", "10.0", "causal_bottom_right s=1024/2048 window=64,0", "9.7.0", "9.7.1"},
    {"WindowIn914", "window.9_14_0", "9.0", "s=1024/2048 window=64", "9.14.0", "9.15.0"},

    {"GroupedHeads", "heads.grouped", "9.0", "heads=16/2", "8.9.6", "8.9.7"},
    {"OneHeadOfKeys", "heads.grouped", "8.9", "bwd heads=16/1", "8.9.6", "8.9.7"},
    {"ThdOnHopper", "layout.thd.hopper", "9.0", "thd padding_causal", "9.0.0", "9.1.0"},
    {"ThdOnAmpere", "layout.thd.ampere", "8.6", "thd padding_causal", "9.18.0", "9.18.1"},
    {"ThdOnAmpereBackward", "layout.thd.ampere", "8.0", "bwd thd padding", "9.18.0", "9.18.1"},
    {"ThdGrouped", "layout.thd.grouped", "9.0", "thd padding heads=16/4", "9.5.0", "9.6.0"},
    {"ThdOf2To31Elements", "layout.thd.large", "9.0", "thd padding batch=1048576", "9.4.0", "9.5.0"},
    {"Bias", "bias.post_scale", "9.0", "post_scale", "8.9.5", "8.9.6"},
    {"BooleanBias", "bias.post_scale", "9.0", "boolean", "8.9.5", "8.9.6"},
    {"BiasOnAmpere", "bias.post_scale.ampere", "8.6", "post_scale", "8.9.7", "9.0.0"},
    {"BiasGradient", "bias.gradient", "9.0", "bwd post_scale gradient s=1000", "9.4.0", "9.5.0"},
    {"BiasGradientOnAmpere", "bias.gradient", "8.0", "bwd post_scale gradient s=1024/1000", "9.4.0", "9.5.0"},
    {"Alibi", "bias.alibi", "9.0", "causal alibi", "8.9.5", "8.9.6"},
    {"DeterministicOnBlackwell", "deterministic.blackwell", "10.0", "bwd deterministic", "9.18.0", "9.18.1"},
    {"DeterministicOnBlackwell103", "deterministic.blackwell", "10.3", "bwd deterministic causal", "9.18.0", "9.18.1"},
};
// clang-format on

INSTANTIATE_TEST_SUITE_P(Attention, VersionEdges, testing::ValuesIn(kVersionEdges),
                         name_of<VersionEdge>);

/// Two neighbours, of which the rule refuses one whatever is upgraded.
struct Edge {
  const char* name;
  const char* rule;
  const char* refused;
  const char* supported;
};

class Edges : public testing::TestWithParam<Edge> {};

TEST_P(Edges, AreWhereTheRuleSays) {
  const auto& [name, rule, refused, supported] = GetParam();
  expect_refused(refused, rule);
  expect_supported(supported);
}

// clang-format off
constexpr Edge kEdges[] = {
    {"BeforeAmpere", "arch.before_ampere", "7.5 9.19.0", "8.0 9.19.0"},
    {"BeforeAmpereBackward", "arch.before_ampere", "7.5 9.19.0 bwd", "8.0 9.19.0 bwd"},
    {"AfterAllKnown", "arch.unknown", "12.2 9.19.0", "12.1 9.19.0"},
    {"F32", "dtype.f32.forward", "9.0 9.19.0 f32", "9.0 9.19.0 f16"},
    {"F32Backward", "dtype.f32.backward", "10.0 9.19.0 bwd f32", "10.0 9.19.0 bwd bf16"},

    {"MultiplesOf8", "head_dim.multiple_of_8", "9.0 9.19.0 d=100", "9.0 9.19.0 d=104"},
    {"MultiplesOf8OfV", "head_dim.multiple_of_8", "8.0 9.19.0 bwd d=64/60", "8.0 9.19.0 bwd d=64"},
    {"DecodeTopLeft", "head_dim.forward.decode.causal", "10.0 9.19.0 causal d=192/128 s=1/64", "10.0 9.19.0 causal_bottom_right d=192/128 s=1/64"},
    {"BackwardOver256", "head_dim.backward.over_256", "9.0 9.19.0 bwd d=264", "9.0 9.19.0 bwd d=256"},
    {"BackwardOver128OnAmpere", "head_dim.backward.ampere", "8.0 9.19.0 bwd d=136", "8.0 9.19.0 bwd d=128"},
    {"BackwardOver128OnAda", "head_dim.backward.ampere", "8.9 9.19.0 bwd d=192/128", "9.0 9.19.0 bwd d=192/128"},
    {"BackwardOver128On12", "head_dim.backward.12", "12.0 9.19.0 bwd d=136", "12.0 9.19.0 bwd d=128"},
    {"BackwardVOf192OnBlackwell", "head_dim.backward.blackwell.other", "10.0 9.19.0 bwd d=192", "10.0 9.19.0 bwd d=192/128"},
    {"Backward256On11", "head_dim.backward.blackwell.other", "11.0 9.25.0 bwd d=256", "10.0 9.25.0 bwd d=256"},
    {"Backward256WithDropout", "head_dim.backward.blackwell.256.features", "10.0 9.23.0 bwd d=256 dropout=0.5", "10.0 9.23.0 bwd d=256"},
    {"Backward256Window", "head_dim.backward.blackwell.256.features", "10.0 9.23.0 bwd d=256 window=64", "10.0 9.23.0 bwd d=256 causal window=64,0"},
    {"BackwardUnequalFrom911", "head_dim.backward.hopper.unequal", "9.0 9.11.0 bwd d=192/160", "9.0 9.10.2 bwd d=192/160"},
    {"BackwardUnequalBut192", "head_dim.backward.hopper.unequal", "9.0 9.19.0 bwd d=256/128", "9.0 9.19.0 bwd d=192/128"},
    {"BackwardUnequalFrom128", "head_dim.backward.hopper.unequal", "9.0 9.13.0 bwd d=136/128", "9.0 9.13.0 bwd d=128/120"},

    {"LongerQuery", "mask.bottom_right.longer_query", "9.0 9.19.0 causal_bottom_right s=1088/1024", "9.0 9.19.0 causal_bottom_right s=1024"},
    {"BottomRightDropout", "mask.bottom_right.features", "9.0 9.19.0 causal_bottom_right dropout=0.5", "9.0 9.19.0 causal dropout=0.5"},
    {"PaddingBias", "mask.padding.post_scale", "9.0 9.19.0 padding post_scale", "9.0 9.19.0 post_scale"},
    {"OneByOne", "sequence.one_by_one.backward", "9.0 9.19.0 bwd s=1/1", "9.0 9.19.0 bwd s=1/2"},
    {"OneQueryOnAmpere", "sequence.one.backward.ampere", "8.0 9.13.0 bwd s=1/1024", "8.0 9.14.0 bwd s=1/1024"},
    {"OneKeyOnAda", "sequence.one.backward.ampere", "8.9 9.13.0 bwd s=1024/1", "8.9 9.13.0 bwd s=1024/2"},
    {"OneKeyForwardIsAllowed", "sequence.one.backward.ampere", "8.0 9.8.0 bwd s=1024/1", "8.0 9.8.0 s=1024/1"},
    {"OneQueryIn913OnBlackwell", "sequence.one.backward.blackwell.9_13", "10.0 9.13.0 bwd s=1/1024", "10.0 9.13.0 bwd s=1024/1"},
    {"OneQueryFrom914OnBlackwell", "sequence.one.backward.blackwell.9_13", "10.3 9.13.1 bwd s=1/1024", "10.3 9.14.0 bwd s=1/1024"},
    {"CapturedOnMultiplesOf128", "sequence.multiple_of_128.capture", "9.0 9.15.0 bwd capture s=1024/192", "9.0 9.15.0 bwd capture s=1024/256"},
    {"WindowOfLongerQuery", "window.longer_query", "9.0 9.19.0 causal window=64,0 s=1024/512", "9.0 9.19.0 causal window=64,0 s=512"},
    {"WindowIn914OverSkv1024", "window.9_14_0", "9.0 9.14.0 s=1088 window=64", "9.0 9.14.0 s=1024 window=64"},
    {"HangFrom921", "mask.bottom_right.9_21.10_3", "10.3 9.21.0 causal_bottom_right", "10.3 9.20.0 causal_bottom_right"},
    {"HangBefore922", "mask.bottom_right.9_21.10_3", "10.3 9.21.1 causal_bottom_right", "10.3 9.22.0 causal_bottom_right"},

    {"ThdMask", "layout.thd.mask", "9.0 9.19.0 thd causal", "9.0 9.19.0 thd padding_causal"},
    {"ThdDeterministicOnAmpere", "layout.thd.deterministic", "8.0 9.19.0 bwd thd padding deterministic", "9.0 9.19.0 bwd thd padding deterministic"},
    {"AlibiOnAda", "bias.alibi.ampere", "8.9 9.19.0 causal alibi", "9.0 9.19.0 causal alibi"},
    {"AlibiMask", "bias.alibi.mask", "9.0 9.19.0 padding_causal alibi", "9.0 9.19.0 causal alibi"},
    {"DropoutOfOne", "dropout.one", "9.0 9.19.0 dropout=1", "9.0 9.19.0 dropout=0.9375"},
    {"DropoutAndBiasOnBlackwell", "dropout.bias.blackwell", "10.0 9.19.0 bwd post_scale dropout=0.5", "9.0 9.19.0 bwd post_scale dropout=0.5"},
    {"DropoutAndBiasOn12", "dropout.bias.blackwell", "12.0 9.19.0 bwd causal alibi dropout=0.5", "12.0 9.19.0 causal alibi dropout=0.5"},
    {"DeterministicDropout", "deterministic.blackwell.features", "10.0 9.19.0 bwd deterministic dropout=0.5", "10.0 9.19.0 bwd dropout=0.5"},
    {"DeterministicBias", "deterministic.blackwell.features", "10.3 9.19.0 bwd deterministic post_scale", "9.0 9.19.0 bwd deterministic post_scale"},
    {"DeterministicOn12", "deterministic.12", "12.0 9.19.0 bwd deterministic", "12.0 9.19.0 deterministic"},
    {"GradientOfABias", "bias.gradient", "9.0 9.4.0 bwd post_scale gradient s=1000", "9.0 9.4.0 bwd post_scale s=1000"},
};
// clang-format on

INSTANTIATE_TEST_SUITE_P(Attention, Edges, testing::ValuesIn(kEdges), name_of<Edge>);

/// Every rule that refuses is at an edge above, or in the tests of strides below.
TEST(AllEdges, AreOfEveryRuleThatRefuses) {
  std::vector<std::string> met{"heads.group_strides", "layout.strides", "layout.mixed",
                               "layout.thd.interleaved", "bias.gradient.thd.blackwell"};
  for (const VersionEdge& each : kVersionEdges) met.emplace_back(each.rule);
  for (const Edge& each : kEdges) met.emplace_back(each.rule);
  for (const Rule& rule : built_in_rules().rules()) {
    if (rule.kind == RuleKind::kFrameworkPolicy)
      continue;
    EXPECT_THAT(met, Contains(rule.id));
  }
}

TEST(StrideEdges, LastDimensionOfStrideOne) {
  Problem problem = base();
  problem.v.dim = 2;
  EXPECT_THAT(refusals(problem, {9, 0}, "9.19"), Contains("layout.strides"));
  problem.v.dim = 1;
  EXPECT_THAT(refusals(problem, {9, 0}, "9.19"), IsEmpty());
}

TEST(StrideEdges, GroupsOfHeadsThatLieApart) {
  Problem problem = base();
  problem.kv_heads = 4;
  set_strides(problem);
  problem.q.group = 4 * problem.q.head;  // where one stride leads, too
  EXPECT_THAT(refusals(problem, {9, 0}, "9.19"), IsEmpty());
  problem.q.group = 6 * problem.q.head;
  problem.q.sequence = 4 * problem.q.group;
  problem.q.batch = problem.sq * problem.q.sequence;
  EXPECT_TRUE(validate(problem));
  EXPECT_THAT(refusals(problem, {9, 0}, "9.19"), Contains("heads.group_strides"));
  problem.k.group = problem.q.group;
  EXPECT_FALSE(validate(problem));
}

TEST(StrideEdges, QueryInAnotherOrderThanKeyAndValue) {
  Problem problem = base();
  Problem other = problem;
  other.layout = Layout::kSbhd;
  set_strides(other);
  problem.k = other.k;
  problem.v = other.v;
  EXPECT_THAT(refusals(problem, {9, 0}, "9.6.9"), Contains("layout.mixed"));
  EXPECT_THAT(refusals(problem, {9, 0}, "9.7.0"), IsEmpty());
  // One tensor of query, key and value is in one order.
  problem = base();
  for (Strides* const each : {&problem.q, &problem.k, &problem.v}) {
    each->batch *= 3;
    each->sequence *= 3;
  }
  EXPECT_THAT(refusals(problem, {9, 0}, "9.6.9"), IsEmpty());
  // A length of 1 is in any order.
  problem = base();
  other.batch = problem.batch = 1;
  set_strides(other);
  set_strides(problem);
  problem.k = other.k;
  EXPECT_THAT(refusals(problem, {9, 0}, "9.6.9"), IsEmpty());
}

TEST(StrideEdges, ThdInOneTensorOn12) {
  Problem problem = base();
  problem.layout = Layout::kThd;
  problem.mask = Mask::kPadding;
  set_strides(problem);
  EXPECT_THAT(refusals(problem, {12, 0}, "9.19"), IsEmpty());
  for (Strides* const each : {&problem.q, &problem.k, &problem.v}) each->sequence *= 3;
  EXPECT_THAT(refusals(problem, {12, 0}, "9.19"), Contains("layout.thd.interleaved"));
  EXPECT_THAT(refusals(problem, {10, 0}, "9.19"), IsEmpty());
}

// Padding masks, which thd needs, exclude a bias anyhow.
TEST(StrideEdges, GradientOfABiasInThdOnBlackwell) {
  Problem problem = base(Pass::kBackward);
  problem.layout = Layout::kThd;
  problem.mask = Mask::kPadding;
  problem.bias_kind = Bias::kPostScale;
  problem.bias_gradient = true;
  set_strides(problem);
  constexpr const char* kRule = "bias.gradient.thd.blackwell";
  EXPECT_THAT(refusals(problem, {10, 0}, "9.19"), Contains(kRule));
  EXPECT_THAT(refusals(problem, {9, 0}, "9.19"), testing::Not(Contains(kRule)));
}

}  // namespace
}  // namespace kiln::attention
