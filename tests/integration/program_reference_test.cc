// The man page and the guide say what the program does: nothing less.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <regex>
#include <string>

#include "build/settings.h"
#include "tests/support/paths.h"
#include "tools/program.h"
#include "util/read_file.h"

namespace kiln {
namespace {

using testing::HasSubstr;

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

}  // namespace
}  // namespace kiln
