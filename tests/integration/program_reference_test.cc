// The man page and the bash completion say what the program does: nothing less.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <regex>
#include <set>
#include <string>

#include "build/settings.h"
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

/// What a bash that knows the completion offers after `line`.
std::set<std::string> offered(const std::string& line) {
  const std::string program =
      std::filesystem::path(test::paths::kProgram).parent_path();
  const std::string command = "PATH=" + program + ":$PATH bash -c '. " + kCompletion +
                              "; COMP_LINE=\"" + line +
                              "\"; COMP_POINT=${#COMP_LINE}; _kiln; "
                              "printf \"%s\\n\" \"${COMPREPLY[@]}\"'";
  std::set<std::string> lines;
  std::FILE* const out = ::popen(command.c_str(), "r");
  for (char word[256]; std::fgets(word, sizeof(word), out) != nullptr;)
    lines.insert(std::string(word, std::string_view(word).find('\n')));
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

TEST(ProgramReferenceTest, CompletionOffersVerbsThenOptions) {
  EXPECT_EQ(offered("kiln w"), (std::set<std::string>{"warm", "why"}));
  EXPECT_EQ(offered("kiln verify --q"), (std::set<std::string>{"--quarantine"}));
  EXPECT_TRUE(offered("kiln ls --").contains("--sort"));
  EXPECT_EQ(offered("kiln ls --sort s"), (std::set<std::string>{"size"}));
  EXPECT_EQ(offered("kiln warm --preset llama-3-8"),
            (std::set<std::string>{"llama-3-8b"}));
  EXPECT_EQ(offered("kiln warm --profile h100"),
            (std::set<std::string>{"h100-pcie", "h100-sxm"}));
  EXPECT_EQ(offered("kiln warm --arch 9"), (std::set<std::string>{"9.0"}));
  EXPECT_EQ(offered("kiln warm --arch 8.0,9"), (std::set<std::string>{"8.0,9.0"}));
  EXPECT_FALSE(offered("kiln warm --arch ").contains("3.5")) << "no NVRTC 12 has it";
  EXPECT_EQ(offered("kiln attention w"), (std::set<std::string>{"warm", "why"}));
  EXPECT_EQ(offered("kiln key n"), (std::set<std::string>{"new"}));
}

TEST(ProgramReferenceTest, CompletionOffersTheWordsOfAnOption) {
  EXPECT_EQ(offered("kiln attention explain --pass "),
            (std::set<std::string>{"fwd", "bwd"}));
  EXPECT_EQ(offered("kiln attention warm --layout b"),
            (std::set<std::string>{"bhsd", "bshd"}));
  EXPECT_TRUE(offered("kiln attention why --mask ").contains("padding_causal"));
  EXPECT_EQ(offered("kiln attention explain --batch "),
            offered("kiln doctor --compare "))
      << "no action, where a value is due";
}

// bash itself completes what stands behind the last : or =.
TEST(ProgramReferenceTest, CompletionKnowsTheParametersOfATemplate) {
  EXPECT_EQ(offered("kiln warm --template scaled_masked_softmax_f"),
            (std::set<std::string>{"scaled_masked_softmax_fwd"}));
  EXPECT_EQ(offered("kiln warm --template scaled_softmax_fwd:"),
            (std::set<std::string>{"dtype=", "max_cols="}));
  EXPECT_EQ(offered("kiln why --template scaled_softmax_fwd:d"),
            (std::set<std::string>{"dtype="}));
  EXPECT_EQ(offered("kiln render scaled_softmax_fwd:dtype="),
            (std::set<std::string>{"f16", "bf16", "f32"}));
  EXPECT_EQ(offered("kiln warm --template scaled_softmax_fwd:dtype=bf16,ma"),
            (std::set<std::string>{"bf16,max_cols="}));
  EXPECT_EQ(offered("kiln warm --template scaled_softmax_fwd:dtype=bf16,max_cols=an"),
            (std::set<std::string>{"any"}));
  EXPECT_EQ(offered("kiln warm --template none:d"), (std::set<std::string>{}));
}

}  // namespace
}  // namespace kiln
