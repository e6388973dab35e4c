// The man page and the bash completion say what the program does: nothing less.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <regex>
#include <set>
#include <string>

#include "build/config.h"
#include "tests/support/paths.h"
#include "tools/program.h"
#include "util/read_file.h"

namespace kiln {
namespace {

using testing::HasSubstr;

const std::string kManPage = test::paths::built("share/man/man1/kiln.1");
const std::string kCompletion =
    test::paths::built("share/bash-completion/completions/kiln");

std::string page(const std::string& path) {
  return read_text_file(path, 1U << 20U).value();
}

/// What a bash that knows the completion offers for `words`, the last one unfinished.
std::set<std::string> offered(const std::string& words, int index) {
  const std::string command = "bash -c '. " + kCompletion + "; COMP_WORDS=(" + words +
                              "); COMP_CWORD=" + std::to_string(index) +
                              "; _kiln; printf \"%s\\n\" \"${COMPREPLY[@]}\"'";
  std::set<std::string> lines;
  std::FILE* const out = ::popen(command.c_str(), "r");
  for (char line[256]; std::fgets(line, sizeof(line), out) != nullptr;)
    lines.insert(std::string(line, std::string_view(line).find('\n')));
  EXPECT_EQ(::pclose(out), 0) << command;
  lines.erase("");
  return lines;
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
  for (const EnvironmentVariable& variable : environment_reference())
    EXPECT_THAT(man, HasSubstr(std::string(".B ") + variable.name + "\n"));
}

TEST(ProgramReferenceTest, TheManPageHasNoTroffMistake) {
  if (std::system("command -v man >/dev/null") != 0)
    GTEST_SKIP() << "no man on this machine";
  const std::string command = "LC_ALL=C.UTF-8 MANROFFSEQ= man --warnings -l " +
                              kManPage +
                              " 2>&1 >/dev/null | grep -q . && exit 1 || exit 0";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST(ProgramReferenceTest, CompletionOffersVerbsThenOptions) {
  EXPECT_EQ(offered("kiln w", 1), (std::set<std::string>{"warm", "why"}));
  EXPECT_EQ(offered("kiln verify --q", 2), (std::set<std::string>{"--quarantine"}));
  EXPECT_TRUE(offered("kiln ls --", 2).contains("--sort"));
  EXPECT_EQ(offered("kiln ls --sort s", 3), (std::set<std::string>{"size"}));
  EXPECT_EQ(offered("kiln warm --preset llama-3-8", 3),
            (std::set<std::string>{"llama-3-8b"}));
  EXPECT_EQ(offered("kiln warm --profile h100", 3),
            (std::set<std::string>{"h100-pcie", "h100-sxm"}));
  EXPECT_EQ(offered("kiln warm --arch 9", 3), (std::set<std::string>{"9.0"}));
  EXPECT_EQ(offered("kiln attention w", 2), (std::set<std::string>{"warm", "why"}));
}

}  // namespace
}  // namespace kiln
