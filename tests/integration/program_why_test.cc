// kiln why: the fields in which two keys differ, and why requests miss.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/integration/program_inspect.h"

namespace kiln {
namespace {

using nlohmann::json;
using test::operator+;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;
using testing::UnorderedElementsAre;
using Arguments = test::KilnProgram::Arguments;

TEST_F(ProgramInspectTest, WhyNamesExactlyTheFieldThatDiffers) {
  const json report = warm("tiny_fwd:dtype=bf16", "9.0");
  const std::string a = report["entries"][0]["key"];
  const std::string b = report["entries"][1]["key"];
  const json why = kiln_.json_of({"why", a.substr(0, 10), b});
  EXPECT_EQ(why["same"], false);
  EXPECT_EQ(why["key"], a);
  EXPECT_EQ(why["nearest"], b);
  ASSERT_THAT(why["differences"], SizeIs(1));
  EXPECT_THAT(why["differences"][0]["field"].get<std::string>(), HasSubstr("wide"));
  EXPECT_THAT(std::vector({why["differences"][0]["a"].get<std::string>(),
                           why["differences"][0]["b"].get<std::string>()}),
              UnorderedElementsAre("false", "true"));
  EXPECT_EQ(kiln_.json_of({"why", a, a})["same"], true);
  const std::string other = one("tiny_fwd:dtype=bf16,wide=false", "8.0");
  const json arch =
      kiln_.json_of({"why", one("tiny_fwd:dtype=bf16,wide=false", "9.0"), other});
  ASSERT_THAT(arch["differences"], SizeIs(1));
  EXPECT_EQ(arch["differences"][0]["a"], "sm_90");
  EXPECT_EQ(arch["differences"][0]["b"], "sm_80");
}

TEST_F(ProgramInspectTest, WhySaysWhetherARequestHitsAndWhatIsNearest) {
  const std::string key = one("tiny_fwd:dtype=bf16,wide=false");
  const Arguments request{"why", "--arch", "9.0", "--template"};
  auto hit = request;
  hit.emplace_back("tiny_fwd:dtype=bf16,wide=false");
  EXPECT_EQ(kiln_.json_of(hit)["same"], true);
  EXPECT_THAT(kiln_.run(hit).out, HasSubstr("a hit"));
  auto miss = request;
  miss.emplace_back("tiny_fwd:dtype=f16,wide=false");
  const json why = kiln_.json_of(miss);
  EXPECT_EQ(why["same"], false);
  EXPECT_EQ(why["nearest"], key);
  ASSERT_THAT(why["differences"], SizeIs(1));
  EXPECT_EQ(why["differences"][0]["a"], "f16");
  EXPECT_EQ(why["differences"][0]["b"], "bf16");
  EXPECT_THAT(kiln_.run(miss).out, HasSubstr("a miss"));
  kiln_.run({"clear", "--all", "--yes"});
  EXPECT_TRUE(kiln_.json_of(miss)["nearest"].is_null());
}

TEST_F(ProgramInspectTest, WhyMeansByItsWordsWhatWarmBuildsForThem) {
  const std::string key = one("tiny_fwd:dtype=bf16,wide=false");
  for (const char* words : {"tiny_fwd:dtype=bf16", "tiny_fwd", "tiny"}) {
    const Arguments flags{"--template", words, "--arch", "9.0"};
    const json why = kiln_.json_of(Arguments{"why"} + flags);
    std::set<std::string> asked;
    std::set<std::string> missing;
    for (const json& each : why["requests"]) {
      asked.insert(each["key"]);
      if (!each["same"].get<bool>())
        missing.insert(each["key"]);
    }
    std::set<std::string> built;
    const json dry = kiln_.json_of(Arguments{"warm", "--dry-run"} + flags);
    for (const json& each : dry["entries"]) {
      built.insert(each["key"]);
      EXPECT_EQ(missing.contains(each["key"]), each["outcome"] == "missing");
    }
    EXPECT_EQ(asked, built) << words;
    EXPECT_THAT(
        kiln_.run(Arguments{"why"} + flags).out,
        AllOf(HasSubstr(fmt::format("{} is {} kernels", words, built.size())),
              HasSubstr(fmt::format("1 in the cache, {} miss", missing.size()))));
  }
  // What a program gets by the same words comes first: the defaults.
  EXPECT_EQ(kiln_.json_of(
                {"why", "--template", "tiny_fwd:dtype=bf16", "--arch", "9.0"})["key"],
            key);
}

}  // namespace
}  // namespace kiln
