// Rules as files: what they may say, and that those built in hold together.

#include "attention/rule.h"

#include "tests/support/test.h"
#include "tests/unit/attention/problems.h"

namespace kiln::attention {
namespace {

constexpr std::string_view kGood = R"(schema = 1
[[rule]]
id = "a.rule"
kind = "support"
applies = ["pass == bwd", { any = ["dqk > 128", { not = ["window"] }] }]
needs = ["cudnn >= 9.5.0"]
reason = "it needs 9.5.0"
remedy = [{ upgrade_cudnn = "9.5.0" }]
source = ["upstream 1.0"]
)";

std::string with(std::string_view from, std::string_view to) {
  std::string text(kGood);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refused(const std::string& text) {
  const auto rules = parse_rules(text, "r.toml");
  EXPECT_FALSE(rules) << text;
  return rules ? "" : rules.error().message;
}

TEST(Rules, AreReadAndHeldAgainstAProblem) {
  const Rule rule = parse_rules(kGood, "r.toml").value().at(0);
  Problem problem = base(Pass::kBackward);
  const auto applies = [&] {
    return holds(rule.applies, {problem, {9, 0}, version("9.1")});
  };
  EXPECT_TRUE(applies());
  problem.window_left = 5;
  EXPECT_FALSE(applies());
  problem.dqk = 192;
  EXPECT_TRUE(applies());
  problem.pass = Pass::kForward;
  EXPECT_FALSE(applies());
  EXPECT_TRUE(holds(rule.needs, {problem, {9, 0}, version("9.5")}));
  EXPECT_FALSE(holds(rule.needs, {problem, {9, 0}, version("8.9.7")}));
}

TEST(Rules, NameFileLineAndNearestWordOfAMistake) {
  EXPECT_EQ(refused(with("kind =", "knid =")),
            "r.toml:4: unknown key 'knid' in [[rule]], did you mean 'kind'?");
  EXPECT_THAT(refused(with("dqk > 128", "dkq > 128")),
              AllOf(StartsWith("r.toml:5: "), HasSubstr("did you mean 'dqk'?")));
  EXPECT_THAT(refused(with("\"support\"", "\"suport\"")), HasSubstr("'support'?"));
  EXPECT_THAT(
      refused(with(">= 9.5.0", ">= 9.5.x")),
      AllOf(StartsWith("r.toml:6: "), HasSubstr("'9.5.x' is no cuDNN version")));
  EXPECT_THAT(refused(with("upgrade_cudnn = \"9.5.0\"", "upgrade_cudnn = \"nine\"")),
              AllOf(StartsWith("r.toml:8: "), HasSubstr("'nine'")));
  EXPECT_THAT(refused(with("pass == bwd", "pass == backward")),
              HasSubstr("one of fwd, bwd"));
  for (const char* const wrong :
       {"pass < bwd", "dqk", "dqk >", "dqk > 1 2", "dqk => 1", "dqk % 0 == 0",
        "pass % 2 == 0", "window == maybe", "arch >= nine", "dqk > dtype", ""})
    EXPECT_THAT(refused(with("pass == bwd", wrong)), StartsWith("r.toml:5: ")) << wrong;
}

TEST(Rules, MissNothing) {
  for (const char* const line :
       {"id = \"a.rule\"\n", "kind = \"support\"\n", "needs = [\"cudnn >= 9.5.0\"]\n",
        "reason = \"it needs 9.5.0\"\n", "source = [\"upstream 1.0\"]\n",
        "remedy = [{ upgrade_cudnn = \"9.5.0\" }]\n"})
    EXPECT_THAT(refused(with(line, "")), StartsWith("r.toml:2: ")) << line;
  EXPECT_THAT(refused(with("[\"upstream 1.0\"]", "[\"\"]")), HasSubstr("'source'"));
  EXPECT_THAT(refused(with("\"it needs 9.5.0\"", "\"\"")), HasSubstr("'reason'"));
  EXPECT_THAT(refused(with("[{ upgrade_cudnn = \"9.5.0\" }]", "[]")),
              HasSubstr("'remedy'"));
  EXPECT_THAT(refused("schema = 2\n"), HasSubstr("'schema'"));
  EXPECT_THAT(refused("schema = 1\n"), HasSubstr("[[rule]]"));
}

TEST(Rules, HaveIdsOfTheirOwn) {
  const std::string once(kGood);
  EXPECT_THAT(refused(once + once.substr(once.find("[[rule]]"))),
              StartsWith("r.toml:10: there is a rule 'a.rule' already: r.toml:2"));
  auto rules = parse_rules(kGood, "r.toml").value();
  rules.push_back(parse_rules(kGood, "other.toml").value().at(0));
  EXPECT_EQ(check_ids(rules).error().message,
            "other.toml:2: there is a rule 'a.rule' already: r.toml:2");
}

TEST(Rules, OfferNoRemedyThatCannotBe) {
  const auto remedy = [](const std::string& text) {
    return refused(with("{ upgrade_cudnn = \"9.5.0\" }", text));
  };
  EXPECT_THAT(remedy("{ upgrade_cudnn = \"9.4.0\" }"), HasSubstr("9.4.0, which is"));
  EXPECT_THAT(remedy("{ change = { arch = \"9.0\" }, advice = \"x\" }"),
              HasSubstr("'arch' cannot be changed"));
  EXPECT_THAT(remedy("{ change = { dv = \"dkq\" }, advice = \"x\" }"),
              HasSubstr("'dkq'"));
  EXPECT_THAT(remedy("{ change = { dv = \"round_up x\" }, advice = \"x\" }"),
              HasSubstr("'x'"));
  EXPECT_THAT(remedy("{ change = { dv = 64 } }"), HasSubstr("'advice'"));
  EXPECT_THAT(remedy("\"pray\""), HasSubstr("a remedy is a table"));
}

TEST(BuiltInRules, AreReadAndSayWhatAVersionRuleNeedsInItsReason) {
  EXPECT_GE(built_in_rules().rules().size(), 60U);
  EXPECT_TRUE(check_ids(built_in_rules().rules()));
  for (const Rule& rule : built_in_rules().rules()) {
    std::vector<CudnnVersion> versions;
    collect_versions(rule.needs, versions);
    if (rule.kind != RuleKind::kSupport)
      continue;
    for (const CudnnVersion each : versions)
      EXPECT_THAT(rule.reason, HasSubstr(to_string(each))) << rule.id;
  }
}

}  // namespace
}  // namespace kiln::attention
