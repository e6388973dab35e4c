// Every command of README, CONTRIBUTING and docs/, run as it stands there, with the
// output that is shown, and their code. The C compiles; all other code is that of
// programs that other tests run.

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/integration/pages.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln {
namespace {

using test::code_lines;
using test::code_lines_of;
using test::expect_in_order;
using test::lines_of;
using test::without_indentation;

/// The README first, since its commands fill the cache; not docs/stories.md, which
/// tests/python/test_stories.py runs.
std::vector<std::string> pages() {
  std::vector<std::string> found;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::paths::source("docs"))) {
    if (entry.is_regular_file())
      found.push_back("docs/" + entry.path().filename().string());
  }
  std::erase(found, "docs/stories.md");
  found.emplace_back("CONTRIBUTING.md");
  std::ranges::sort(found);
  found.insert(found.begin(), "README.md");
  return found;
}

/// Its words with one blank between two, and a number sign for each that has a digit:
/// times, sizes and keys are this machine's, and so is how the compiler was found.
std::string without_figures(const std::string& text) {
  std::istringstream words(text);
  std::string out;
  for (std::string word; words >> word;) {
    const bool has_digit =
        std::ranges::any_of(word, [](unsigned char c) { return std::isdigit(c) != 0; });
    if (word != "s" && word != "ms")
      out += (has_digit ? "#" : word) + " ";
  }
  for (const std::string_view how :
       {"(KILN_NVRTC names it) ", "(the last warm recorded it) "}) {
    if (const std::size_t at = out.find(how); at != std::string::npos)
      out.erase(at, how.size());
  }
  return out;
}

/// With keys in the places of the words that stand for them.
std::string with_keys(std::string command, const std::vector<std::string>& keys) {
  std::size_t next = 0;
  for (const std::string_view word : {"KEY", "OTHER"}) {
    const std::size_t at = command.find(word);
    if (at != std::string::npos)
      command.replace(at, word.size(), keys.at(next++ % keys.size()));
  }
  return command;
}

/// The files that the commands name.
void copy_examples(const test::KilnProgram& kiln) {
  std::filesystem::copy(test::paths::source("tests/examples"), kiln.folder(),
                        std::filesystem::copy_options::recursive);
}

/// Those in blocks that name no language, of all pages.
std::vector<std::string> all_commands() {
  std::vector<std::string> commands;
  for (const std::string& page : pages()) {
    for (const std::string& line : code_lines(lines_of(page), "")) {
      if (line.starts_with("kiln "))
        commands.push_back(line);
    }
  }
  return commands;
}

TEST(ReadmeTest, EveryCommandDoesWhatItSays) {
  test::KilnProgram kiln;
  kiln.use_fake_nvrtc();  // the commands are what is tried, not the compiler
  copy_examples(kiln);
  ASSERT_EQ(kiln.run_in_shell("kiln key new trusted").status, 0);  // of the guide
  const std::vector<std::string> commands = all_commands();
  ASSERT_GE(commands.size(), 15U);
  std::vector<std::string> keys;
  for (const std::string& command : commands) {
    const auto finished = kiln.run_in_shell(with_keys(command, keys));
    // What doctor finds wrong is this machine's business; so is whether it has a cuDNN,
    // which the rules by themselves do not ask for.
    if (command.starts_with("kiln attention ") &&
        command.find("--cudnn 9") == std::string::npos)
      EXPECT_THAT(finished.status, AnyOf(0, 3)) << command << finished.text();
    else if (command.starts_with("kiln doctor"))
      EXPECT_THAT(finished.status, AnyOf(0, 1, 3)) << command << finished.text();
    else
      EXPECT_EQ(finished.status, 0) << command << finished.text();
    if (keys.empty()) {
      const auto listed = kiln.json_of({"ls", "--limit", "2"});
      for (const auto& entry : listed["entries"]) keys.push_back(entry["key"]);
      ASSERT_EQ(keys.size(), 2U) << command;
    }
  }
}

// What they build and install is not tried here.
TEST(ReadmeTest, TheScriptsOfTheProjectTakeTheArgumentsThatAreShown) {
  int scripts = 0;
  for (const std::string& page : pages()) {
    for (const std::string& line : code_lines(lines_of(page), "")) {
      if (!line.starts_with("./tools/"))
        continue;
      ++scripts;
      const std::string command = line.substr(0, line.find('#')) + " --help";
      const auto finished = test::KilnProgram().run_in_shell(
          "cd '" + test::paths::source("") + "' && " + command);
      EXPECT_EQ(finished.status, 0) << page << ": " << command << finished.text();
    }
  }
  EXPECT_GE(scripts, 4);
}

/// How many blocks a page has in each language, "" where none is named.
std::map<std::string, int> languages_of(const std::string& page) {
  std::map<std::string, int> found;
  bool is_in = false;
  for (const std::string& indented : lines_of(page)) {
    const std::string line = without_indentation(indented);
    if (!line.starts_with("```"))
      continue;
    is_in = !is_in;
    if (is_in)
      ++found[line.substr(3)];
  }
  return found;
}

TEST(ReadmeTest, NoBlockIsOneThatNothingRuns) {
  using Blocks = std::map<std::string, int>;
  // Besides those without a language and the sessions. tests/python has README's
  // Python, its session with CuPy and all of docs/admin.md, its test_testing.py the kit
  // of docs/testing.md, test_cache.py and test_triton.py those of docs/files.md,
  // test_cpp_extension.py that of docs/extensions.md, and test_troubleshooting.py those
  // of docs/troubleshooting.md.
  const std::map<std::string, Blocks> known{
      {"README.md", {{"cpp", 1}, {"python", 1}, {"text", 1}}},
      {"docs/attention.md", {{"cpp", 1}}},
      {"docs/extensions.md", {{"text", 1}}},
      {"docs/files.md", {{"python", 1}, {"text", 1}}},
      {"docs/from-nvcc.md", {{"cmake", 1}, {"cpp", 3}, {"sh", 2}}},
      {"docs/guide.md", {{"c", 1}, {"cmake", 1}, {"json", 1}, {"sh", 2}}},
      {"docs/operations.md", {{"cpp", 1}}},
      {"docs/testing.md", {{"cpp", 1}, {"python", 1}, {"sh", 3}, {"yaml", 1}}},
      {"docs/troubleshooting.md", {{"text", 10}}},
  };
  // tests/install and tools/ have the commands that are not kiln's; tests/python has
  // the lines of credentials, "https://".
  const auto is_run = [](const std::string& line) {
    return std::ranges::any_of(
        std::array{"kiln ", "{", "./tools/run.sh", "./tools/test.sh",
                   "(cd build/release && cpack)", "apt install ./build/release/kiln_",
                   "g++ -std=c++20 app.cc ", "KILN_SEED=job.kpack python ", "https://",
                   "#"},
        [&](const char* known_line) { return line.starts_with(known_line); });
  };
  for (const std::string& page : pages()) {
    Blocks blocks = languages_of(page);
    blocks.erase("");
    blocks.erase("console");
    if (page != "docs/admin.md") {
      const auto expected = known.find(page);
      EXPECT_EQ(blocks, expected == known.end() ? Blocks() : expected->second) << page;
    }
    for (const std::string& line : code_lines(lines_of(page), ""))
      EXPECT_TRUE(line.empty() || is_run(without_indentation(line)))
          << page << ": " << line;
  }
}

/// Those inside CONTRIBUTING's sentences.
TEST(ReadmeTest, ThePresetAndTheProgramOfContributingExist) {
  const std::string page =
      read_text_file(test::paths::source("CONTRIBUTING.md"), 1U << 20U).value();
  const std::string presets =
      read_text_file(test::paths::source("CMakePresets.json"), 1U << 20U).value();
  EXPECT_THAT(page, AllOf(HasSubstr("`cmake --preset dev`"),
                          HasSubstr("--build --preset dev --target\nreadme_test`"),
                          HasSubstr("`build/dev/bin/readme_test`")));
  EXPECT_THAT(presets, HasSubstr("\"name\": \"dev\""));
  EXPECT_TRUE(std::filesystem::exists(test::paths::built("bin/readme_test")));
}

// As pasted into a shell in which nothing is set, with a folder as the server. A pull
// has an empty cache before it, and the job builds nothing.
TEST(ReadmeTest, WhatTheGuideSharesIsSharedAsPasted) {
  if (!std::filesystem::exists(test::paths::built("bin/kiln-remote")))
    GTEST_SKIP() << "this build has no kiln-remote";
  test::KilnProgram kiln;
  kiln.use_fake_nvrtc();
  kiln.set("KILN_REMOTE_WAIT", "60s");  // the fake compiler is quicker than a server
  const std::string job =
      kiln.write("bin/python",
                 "#!/bin/sh\nexport KILN_CACHE_DIR=node KILN_NO_JIT=1\n"
                 "echo \"$1\"; kiln warm --preset llama-3-8b --arch 9.0\n");
  std::filesystem::permissions(job, std::filesystem::perms::owner_all);
  std::string script = "set -eu\nPATH=$PWD/bin:$PATH\n";
  for (std::string line : code_lines(lines_of("docs/guide.md"), "sh")) {
    if (line.starts_with("export "))
      script += "kiln pack -o job.kpack\n";
    if (line.starts_with("kiln pull "))
      script += "rm -r \"$KILN_CACHE_DIR\"\n";
    const std::string server = "https://cache.example/kiln";
    if (const auto at = line.find(server); at != std::string::npos)
      line.replace(at, server.size(), "file://" + kiln.folder().native() + "/shared");
    script += line + "\n";
  }
  const auto finished = kiln.run_in_shell(script);
  EXPECT_EQ(finished.status, 0) << script << finished.text();
  EXPECT_THAT(finished.out, HasSubstr("train.py\n"));
  EXPECT_EQ(kiln.json_of({"verify", "--cache-dir", kiln.folder() / "node"})["checked"],
            kiln.object_files().size());
}

// As pasted into a shell: the sources of the commands are no stand-ins.
TEST(ReadmeTest, WhatItCompilesIsCompiledByTheRealNvrtc) {
  test::KilnProgram kiln;
  copy_examples(kiln);
  int compiled = 0;
  for (const std::string& command : all_commands()) {
    if (!command.starts_with("kiln compile ") &&
        command.find(" --manifest ") == std::string::npos)
      continue;
    const auto finished = kiln.run_in_shell(command);
    EXPECT_EQ(finished.status, 0) << command << finished.text();
    ++compiled;
  }
  EXPECT_GE(compiled, 4);
  for (const std::string& line : code_lines(lines_of("docs/guide.md"), "json")) {
    const auto linked =
        kiln.run({"warm", "--manifest", kiln.write("link.jsonl", line)});
    EXPECT_EQ(linked.status, 0) << line << linked.text();
  }
}

TEST(ReadmeTest, ItsManifestIsTheOneOfTheExamples) {
  std::vector<std::string> shown;
  for (const std::string& line : code_lines(lines_of("docs/guide.md"), "")) {
    if (line.starts_with("{"))
      shown.push_back(line);
  }
  EXPECT_EQ(shown, lines_of("tests/examples/kernels.jsonl"));
}

TEST(ReadmeTest, EachSessionIsAsItIsShown) {
  for (const std::string& page : pages()) {
    test::KilnProgram kiln;
    kiln.use_fake_nvrtc();
    copy_examples(kiln);
    std::string shown;
    std::string said;
    for (const std::string& line : code_lines(lines_of(page), "console")) {
      if (line.starts_with("$ ")) {
        shown += "\n" + line + "\n";
        said +=
            "\n" + line + "\n" +
            without_figures(kiln.run_in_shell("{ " + line.substr(2) + "\n} 2>&1").out);
      } else {
        shown += without_figures(line);
      }
    }
    EXPECT_EQ(said, shown) << page;
  }
}

/// The variables that a file of src, tools or python has as a string, or that the man
/// page lists.
std::set<std::string> settings_that_are_read() {
  std::set<std::string> names;
  const auto collect = [&](const std::string& text, const std::regex& pattern) {
    for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end;
         ++at)
      names.insert((*at)[1]);
  };
  constexpr std::size_t kMost = 1U << 20U;
  for (const char* folder : {"src", "tools", "python"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(test::paths::source(folder))) {
      const auto kind = entry.path().extension();
      if (kind == ".cc" || kind == ".h" || kind == ".py")
        collect(read_text_file(entry.path(), kMost).value(),
                std::regex("[\"'](KILN_[A-Z_]+)[\"']"));
    }
  }
  collect(read_text_file(test::paths::built("share/man/man1/kiln.1"), kMost).value(),
          std::regex("\n\\.B (KILN_[A-Z_]+)\n"));
  return names;
}

TEST(ReadmeTest, TheGuideHasEverySettingThatIsRead) {
  // Between Kiln's own processes, of a compiler of the tests, of the simulated driver,
  // whose page has it, and a number of C.
  const std::set<std::string> no_settings{"KILN_FAKE_NVRTC", "KILN_SIMULATED_DEVICES",
                                          "KILN_UNSET", "KILN_WORKER_SCRATCH"};
  const std::vector<std::string> guide = lines_of("docs/guide.md");
  const auto settings = settings_that_are_read();
  EXPECT_GE(settings.size(), 30U);
  for (const std::string& name : settings) {
    const bool is_in = std::ranges::any_of(guide, [&](const std::string& row) {
      return row.starts_with("| `KILN_") && row.find("`" + name + "`") != row.npos;
    });
    EXPECT_EQ(is_in, !no_settings.contains(name)) << name;
  }
}

TEST(ReadmeTest, ItsFirstUseIsThatOfTheExample) {
  expect_in_order(code_lines_of("README.md", "From C++", "cpp"),
                  "tests/examples/first_use.cc");
}

TEST(ReadmeTest, ItsCCompilesAsStrictC11) {
  const std::vector<std::string> lines =
      code_lines_of("docs/guide.md", "Use it from C", "c");
  ASSERT_FALSE(lines.empty());
  std::string program = "#include <kiln/c.h>\n#include <stdio.h>\nint main(void) {\n";
  for (const std::string& line : lines) program += line + "\n";
  test::KilnProgram shell;
  shell.write("app.c", program + "return 0;\n}\n");
  const auto compiled = shell.run_in_shell(
      "cc -std=c11 -Wall -Wextra -pedantic -Werror -fsyntax-only app.c -I " +
      test::paths::source("src") + " -I " +
      test::paths::built("src/interface/include"));
  EXPECT_EQ(compiled.status, 0) << compiled.text();
}

TEST(ReadmeTest, ItsOperationIsThatOfTheExample) {
  expect_in_order(code_lines_of("docs/operations.md", "Operations from C++", "cpp"),
                  "tests/examples/operations.cc");
}

TEST(ReadmeTest, ItsAttentionIsThatOfTheExample) {
  expect_in_order(
      code_lines_of("docs/attention.md", "Attention that always runs", "cpp"),
      "tests/examples/attention.cc");
}

TEST(ReadmeTest, ItsTestOfAKernelIsTheOneThatIsInstalled) {
  expect_in_order(code_lines_of("docs/testing.md",
                                "With GoogleTest, or any test in C or C++", "cpp"),
                  "tests/examples/own_kernel_test.cc");
}

TEST(ReadmeTest, ItsExampleForCiIsTheOneThatIsInstalled) {
  expect_in_order(code_lines_of("docs/testing.md", "On CI", "sh"),
                  "tests/examples/ci.sh");
}

TEST(ReadmeTest, ItsCMakeIsThatOfTheProjectThatUsesWhatIsInstalled) {
  expect_in_order(code_lines_of("docs/guide.md", "Use it from C++", "cmake"),
                  "tests/install/consumer/CMakeLists.txt");
}

}  // namespace
}  // namespace kiln
