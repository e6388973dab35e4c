// The man page and the guide say what the program does: nothing less.

#include <cstdint>
#include <cstdio>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "build/settings.h"
#include "cache/counters.h"
#include "tests/support/paths.h"
#include "tests/support/test.h"
#include "tools/output/counters.h"
#include "tools/program.h"
#include "util/read_file.h"

namespace kiln {
namespace {

const std::string kManPage = test::paths::built("share/man/man1/kiln.1");

std::string page(const std::string& path) {
  return read_text_file(path, 1U << 20U).value();
}

TEST(ProgramReferenceTest, TheManPageHasEveryVerbOptionAndVariable) {
  const std::string man = page(kManPage);
  const auto program = tools::make_program();
  ASSERT_FALSE(program->verbs.empty());
  for (const tools::ParsedVerb& parsed : program->verbs) {
    EXPECT_THAT(man, HasSubstr(std::string(".SS ") + parsed.verb->name + "\n"));
    for (const CLI::Option* option : parsed.app->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        const auto dashed = std::regex_replace("--" + name, std::regex("-"), "\\-");
        EXPECT_THAT(man, HasSubstr(".B " + dashed)) << parsed.verb->name;
      }
    }
  }
  for (const Setting& setting : every_setting())
    EXPECT_THAT(man, HasSubstr(std::string(".B ") + setting.variable + "\n"));
}

TEST(ProgramReferenceTest, TheGuideHasTheTableOfSettings) {
  const std::string guide = page(test::paths::source("docs/guide.md"));
  std::FILE* const out =
      ::popen((test::paths::built("bin/kiln-reference") + " guide").c_str(), "r");
  std::string table;
  for (char line[1024]; std::fgets(line, sizeof(line), out) != nullptr;) table += line;
  EXPECT_EQ(::pclose(out), 0);
  EXPECT_THAT(guide, HasSubstr("\n\n" + table + "\n"))
      << "`kiln-reference guide` prints the table";
}

TEST(ProgramReferenceTest, TheManPageHasNoTroffMistake) {
  if (std::system("command -v man >/dev/null") != 0)
    GTEST_SKIP() << "no man on this machine";
  const std::string command = "LC_ALL=C.UTF-8 MANROFFSEQ= man --warnings -l " +
                              kManPage +
                              " 2>&1 >/dev/null | grep -q . && exit 1 || exit 0";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST(ProgramReferenceTest, EveryCounterHasAMeaning) {
  std::vector<std::string> names{
      "corrupt.target",       "publish_refused.ENOSPC",  "remote_requests.get.hit.c:80",
      "remote_seconds.0.01",  "remote_microseconds",     "remote_bytes.sent",
      "remote_rejected.size", "remote_breaker_open.c:80"};
  for (std::size_t i = 0; i < cache::kCounterCount; ++i)
    names.emplace_back(to_string(static_cast<cache::Counter>(i)));
  for (const std::string& name : names) {
    const auto meaning = tools::counter_meaning(name);
    EXPECT_FALSE(meaning.empty()) << name;
    EXPECT_LE(meaning.size(), 60U) << name;
  }
  EXPECT_EQ(tools::counter_meaning("of_a_later_version"), "");
}

TEST(ProgramReferenceTest, TheHitRateCountsWhatARemoteHadOnce) {
  const auto text = [](std::map<std::string, std::uint64_t> counters) {
    cache::Stats stats;
    stats.counters = std::move(counters);
    return tools::hit_rate_text(stats);
  };
  EXPECT_EQ(text({}), "");
  EXPECT_EQ(text({{"compiled", 3}}), "");
  EXPECT_EQ(text({{"hits", 93}, {"misses", 7}}), "hits: 93 % of 100 look-ups");
  EXPECT_EQ(text({{"hits", 999}, {"misses", 1}}), "hits: 99 % of 1000 look-ups");
  EXPECT_EQ(text({{"misses", 2}}), "hits: 0 % of 2 look-ups");
  EXPECT_EQ(text({{"hits", 4}, {"misses", 3}, {"remote_hits", 3}}),
            "hits: 100 % of 4 look-ups");
  EXPECT_EQ(text({{"hits", 1}, {"remote_hits", 9}}), "hits: 100 % of 1 look-ups");
}

}  // namespace
}  // namespace kiln
