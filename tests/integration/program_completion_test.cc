// What `kiln __complete` answers to the completions of bash, zsh and fish, and what
// bash makes of it.

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using testing::IsSupersetOf;
using Strings = std::vector<std::string>;

class ProgramCompletionTest : public testing::Test {
 protected:
  /// The answers for the last of `words`, in their order, without their meanings.
  Strings answers(const Strings& words) {
    const auto finished = kiln_.run(Strings{"__complete"} + words);
    EXPECT_EQ(finished.status, 0) << finished.text();
    EXPECT_THAT(finished.err, IsEmpty());
    Strings all;
    std::istringstream lines(finished.out);
    for (std::string line; std::getline(lines, line);)
      all.push_back(line.substr(0, line.find('\t')));
    return all;
  }

  /// The same for a line whose words have no blanks: "kiln w".
  Strings answers_for(const std::string& line) {
    std::istringstream in(line);
    Strings words(std::istream_iterator<std::string>(in), {});
    words.erase(words.begin());
    if (line.ends_with(' '))
      words.emplace_back();
    return answers(words);
  }

  test::KilnProgram kiln_;
};

/// What a bash that knows the completion offers after `line`.
std::set<std::string> offered(const std::string& line) {
  const std::string program =
      std::filesystem::path(test::paths::kProgram).parent_path();
  const std::string command =
      "PATH=" + program + ":$PATH bash -c '. " +
      test::paths::built("share/bash-completion/completions/kiln") + "; COMP_LINE=\"" +
      line +
      "\"; COMP_POINT=${#COMP_LINE}; _kiln; printf \"%s\\n\" \"${COMPREPLY[@]}\"'";
  std::set<std::string> lines;
  std::FILE* const out = ::popen(command.c_str(), "r");
  for (char word[256]; std::fgets(word, sizeof(word), out) != nullptr;)
    lines.insert(std::string(word, std::string_view(word).find('\n')));
  EXPECT_EQ(::pclose(out), 0) << command;
  lines.erase("");
  return lines;
}

TEST_F(ProgramCompletionTest, VerbsThenOptionsThenTheirValues) {
  const std::vector<std::pair<std::string, Strings>> cases{
      {"kiln w", {"warm", "why"}},
      {"kiln nope ", {}},
      {"kiln nope x", {}},
      {"kiln help sh", {"show"}},
      {"kiln help show ", {}},
      {"kiln --v", {"--version"}},
      {"kiln verify --qua", {"--quarantine"}},
      {"kiln verify --none", {}},
      {"kiln verify --none=", {}},
      {"kiln ls --sort s", {"size"}},
      {"kiln ls --kind p", {"ptx", "plan"}},
      {"kiln ls --limit ", {}},
      {"kiln ls x", {}},
      {"kiln warm --preset llama-3-8", {":file *.toml", "llama-3-8b"}},
      {"kiln warm --profile h100", {":file *.json", "h100-pcie", "h100-sxm"}},
      {"kiln doctor --profile ", {":file"}},
      {"kiln warm --arch 9", {"9.0"}},
      {"kiln warm --arch 8.0,9", {"8.0,9.0"}},
      {"kiln warm --arch=8.0,9", {"--arch=8.0,9.0"}},
      {"kiln warm --arch 3", {}},  // no NVRTC 12 has it
      {"kiln warm --shard ", {"auto"}},
      {"kiln warm --remote-mode ", {"off", "r", "rw"}},
      {"kiln warm --color=", {"--color=auto", "--color=always", "--color=never"}},
      {"kiln --color ", {"auto", "always", "never"}},
      {"kiln --color never tri", {"trim"}},
      {"kiln --color=never ls --sort=si", {"--sort=size"}},
      {"kiln compile --std c++1", {"c++17", "c++14", "c++11"}},
      {"kiln compile --option ", {}},
      {"kiln compile --option --arch ", {":file"}},
      {"kiln compile ", {":file"}},
      {"kiln compile -I ", {":folder"}},
      {"kiln compile -- -", {":file"}},
      {"kiln templates --template-dir ", {":folder"}},
      {"kiln stats --format ", {"openmetrics", "prometheus"}},
      {"kiln unpack ", {":file *.kpack*"}},
      {"kiln unpack --keys ", {":file"}},
      {"kiln push --pack ", {":file *.kpack*"}},
      {"kiln verify --k", {"--kind", "--keys"}},
      {"kiln clear --keys ", {":file"}},
      {"kiln ls --signer ", {}},
      {"kiln pull --pack ", {}},
      {"kiln key n", {"new"}},
      {"kiln key new ", {":file"}},
      {"kiln key new x ", {}},
      {"kiln attention w", {"warm", "why"}},
      {"kiln attention why ", {}},
      {"kiln attention explain --pass ", {"fwd", "bwd"}},
      {"kiln attention warm --layout b", {"bshd", "bhsd"}},
      {"kiln attention explain --batch ", {}},
      {"kiln attention why --c", {"--capture", "--color", "--cache-dir"}},
      {"kiln run -- ", {":file"}},
      {"kiln warm --template scaled_masked_softmax_f", {"scaled_masked_softmax_fwd"}},
      {"kiln warm --template scaled_softmax_fwd:",
       {":open", "scaled_softmax_fwd:dtype=", "scaled_softmax_fwd:max_cols="}},
      {"kiln render scaled_softmax_fwd:dtype=bf16,max_cols=an",
       {"scaled_softmax_fwd:dtype=bf16,max_cols=any"}},
      {"kiln warm --template=scaled_softmax_fwd:dtype=b",
       {"--template=scaled_softmax_fwd:dtype=bf16"}},
      {"kiln warm --template none:d", {}},
      {"kiln show abc", {}},
  };
  for (const auto& [line, expected] : cases)
    EXPECT_EQ(answers_for(line), expected) << line;
}

TEST_F(ProgramCompletionTest, KeysAreThoseOfTheCacheThatTheLineNames) {
  kiln_.use_fake_nvrtc();
  kiln_.write("k.cu", test::kTinySource);
  const std::string other = kiln_.folder() / "other";
  ASSERT_EQ(
      kiln_.run({"compile", "k.cu", "--arch", "9.0", "--cache-dir", other}).status, 0);
  EXPECT_THAT(answers({"show", ""}), IsEmpty());
  const Strings keys = answers({"show", "--cache-dir", other, ""});
  ASSERT_EQ(keys.size(), 1U);
  EXPECT_EQ(keys[0].size(), 12U);
  EXPECT_THAT(kiln_.run({"__complete", "show", "--cache-dir=" + other, ""}).out,
              StartsWith(keys[0] + "\tk.cu"));
  const auto whole = answers({"clear", "--cache-dir", other, keys[0] + "0"});
  EXPECT_TRUE(whole.empty() || whole[0] == keys[0] + "0");
  EXPECT_THAT(answers({"why", "--cache-dir", other, keys[0].substr(0, 4)}),
              ElementsAre(":file", keys[0]));
  EXPECT_FALSE(std::filesystem::exists(kiln_.cache_dir())) << "it only looks";
}

TEST_F(ProgramCompletionTest, NamesAndFilesAreThoseOfTheCache) {
  EXPECT_THAT(answers({"ls", "--name", ""}), IsEmpty());
  kiln_.use_fake_nvrtc();
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  ASSERT_EQ(kiln_.run({"compile", source, "--arch", "9.0"}).status, 0);
  kiln_.set("KILN_TEMPLATE_DIR", test::write_tiny_templates(kiln_));
  ASSERT_EQ(
      kiln_.run({"warm", "--template", "tiny_fwd:dtype=bf16", "--arch", "9.0"}).status,
      0);
  for (const char* const verb : {"ls", "clear", "pack", "verify"}) {
    EXPECT_THAT(answers({verb, "--file", ""}), ElementsAre("k.cu"));
    const Strings names = answers({verb, "--name", ""});
    ASSERT_EQ(names.size(), 2U);
    EXPECT_THAT(names, Contains("tiny_fwd"));
    EXPECT_THAT(answers({verb, "--name=tiny"}), ElementsAre("--name=tiny_fwd"));
    for (const std::string& name : names)
      EXPECT_FALSE(kiln_.json_of({"ls", "--name", name})["entries"].empty()) << name;
  }
  EXPECT_THAT(answers({"compile", "--name", ""}), IsEmpty());
}

TEST_F(ProgramCompletionTest, WhateverFailsHasNoAnswers) {
  EXPECT_THAT(answers({}), Contains("warm"));
  EXPECT_THAT(answers({"show", "--cache-dir", "/dev/null", ""}), IsEmpty());
  EXPECT_THAT(answers({"render", "--template-dir", "none", "a"}), IsEmpty());
  EXPECT_THAT(answers({"ls", "--color"}), ElementsAre("--color"));
  EXPECT_THAT(answers({"", "", ""}), IsEmpty());
  EXPECT_THAT(answers({"--", "--", ""}), IsEmpty());
  kiln_.set("KILN_JOBS", "many");
  EXPECT_THAT(answers({"show", ""}), IsEmpty());
  EXPECT_THAT(answers({"warm", "--arch", "9"}), ElementsAre("9.0"));
}

TEST_F(ProgramCompletionTest, EveryOptionOfAVerbHasAMeaning) {
  for (const std::string& verb : answers({""})) {
    const auto finished = kiln_.run({"__complete", verb, "-"});
    std::istringstream lines(finished.out);
    int options = 0;
    for (std::string line; std::getline(lines, line); ++options)
      EXPECT_TRUE(line.find('\t') != std::string::npos ||
                  kiln_.run({verb, "--help"}).out.find(line + " WORD") !=
                      std::string::npos)
          << verb << ": " << line;
    EXPECT_TRUE(options > 4 || verb == "help") << verb;
  }
}

// bash itself completes what stands behind the last : or =.
TEST_F(ProgramCompletionTest, BashTakesTheAnswersApartAsItsWords) {
  using Set = std::set<std::string>;
  const std::vector<std::pair<std::string, Set>> cases{
      {"kiln w", {"warm", "why"}},
      {"kiln attention warm --layout b", {"bhsd", "bshd"}},
      {"kiln warm --arch 8.0,9", {"8.0,9.0"}},
      {"kiln warm --arch=8.0,9", {"8.0,9.0"}},
      {"kiln warm --template scaled_softmax_fwd:", {"dtype=", "max_cols="}},
      {"kiln render scaled_softmax_fwd:dtype=", {"f16", "bf16", "f32"}},
      {"kiln warm --template scaled_softmax_fwd:dtype=bf16,ma", {"bf16,max_cols="}},
      {"kiln warm --template none:d", {}},
      {"kiln ls --limit ", {}},
  };
  for (const auto& [line, expected] : cases) EXPECT_EQ(offered(line), expected) << line;
  const std::string folder = kiln_.folder();
  kiln_.write("a.toml", "");
  kiln_.write("b.txt", "");
  std::filesystem::create_directory(kiln_.folder() / "c");
  const Set toml{folder + "/a.toml", folder + "/c"};
  EXPECT_EQ(offered("kiln warm --preset " + folder + "/"), toml);
  EXPECT_EQ(offered("kiln warm --preset=" + folder + "/"), toml);
  EXPECT_EQ(offered("kiln ls --cache-dir " + folder + "/"), Set{folder + "/c"});
  EXPECT_EQ(offered("kiln compile " + folder + "/b"), Set{folder + "/b.txt"});
}

TEST_F(ProgramCompletionTest, TheShellsThatAreHereCanReadTheirFiles) {
  const std::vector<std::array<std::string, 3>> shells{
      {"bash", "-n", "bash-completion/completions/kiln"},
      {"zsh", "-n", "zsh/site-functions/_kiln"},
      {"fish", "--no-execute", "fish/vendor_completions.d/kiln.fish"}};
  for (const auto& [shell, check, file] : shells) {
    const std::string path = test::paths::built("share/" + file);
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
    const std::string command = "! command -v " + shell + " >/dev/null || ";
    EXPECT_EQ(std::system((command + shell + " " + check + " " + path).c_str()), 0);
  }
}

}  // namespace
}  // namespace kiln
