// What the program does on a terminal, and what it must not do elsewhere.

#include <cctype>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

constexpr const char* kEscape = "\033[";
constexpr const char* kColour = "\033[31m";

class ProgramTerminalTest : public testing::Test {
 protected:
  void SetUp() override {
    kiln_.use_fake_nvrtc();
    kiln_.set("TERM", "xterm");
    kiln_.set("KILN_TEMPLATE_DIR", test::write_tiny_templates(kiln_));
  }
  test::KilnProgram kiln_;
  const test::KilnProgram::Arguments warm_{"warm", "--template", "tiny", "--arch",
                                           "9.0"};
};

TEST_F(ProgramTerminalTest, TheProgressBarIsRedrawnInPlaceAndGoneAtTheEnd) {
  EXPECT_EQ(kiln_.run(warm_).status, 0);
  kiln_.use_fake_nvrtc("hang");  // builds that take as long as they may
  const std::string manifest = kiln_.write("m.jsonl",
                                           "{\"source\":\"__global__ void a() {}\"}\n"
                                           "{\"source\":\"__global__ void b() {}\"}\n");
  const auto finished =
      kiln_.run_on_terminal({"warm", "--manifest", manifest, "--arch", "9.0", "--jobs",
                             "1", "--timeout", "300ms"});
  EXPECT_EQ(finished.status, 1) << finished.text();
  EXPECT_THAT(finished.out, HasSubstr("\r\033[K["));
  EXPECT_THAT(finished.out, HasSubstr("0 of 2 in the cache, 2 to build"));
  EXPECT_TRUE(std::regex_search(finished.out, std::regex("1/2  [0-9.]+ m?s left")))
      << finished.text();
  // The last thing drawn is wiped before the summary.
  const auto summary = finished.out.find("2 requested");
  ASSERT_NE(summary, std::string::npos) << finished.text();
  const auto bar = finished.out.rfind("\033[K[", summary);
  EXPECT_NE(finished.out.substr(bar + 4, summary - bar - 4).find("\r\033[K"),
            std::string::npos);
  for (std::size_t at = finished.out.find("\033[K["); at != std::string::npos;
       at = finished.out.find("\033[K[", at + 1)) {
    const auto line = finished.out.substr(at + 3, finished.out.find('\r', at) - at - 3);
    EXPECT_LT(line.size() + 2, 100U) << "no room for a ^C: " << line;
  }
}

TEST_F(ProgramTerminalTest, CtrlCLeavesACleanLineThatSaysHowToGoOn) {
  EXPECT_EQ(kiln_.run(warm_).status, 0);
  kiln_.use_fake_nvrtc("hang");
  const std::string manifest =
      kiln_.write("m.jsonl", "{\"source\":\"__global__ void a() {}\"}\n");
  const auto stopped = kiln_.run_on_terminal(
      {"warm", "--manifest", manifest, "--arch", "9.0"}, "\003", 80, "] 0/1");
  EXPECT_EQ(stopped.status, 130) << stopped.text();
  // The bar goes, and the ^C of the terminal with it.
  EXPECT_THAT(stopped.out,
              HasSubstr("\r\033[K1 requested: 0 hits, 0 compiled, 1 not "));
  EXPECT_THAT(stopped.out, testing::EndsWith("the same command again goes on from "
                                             "here\r\n"));
}

TEST_F(ProgramTerminalTest, ElsewhereThereAreNoEscapesAndNoCarriageReturns) {
  kiln_.use_fake_nvrtc("empty");
  for (const test::KilnProgram::Arguments& arguments :
       {warm_, test::KilnProgram::Arguments{"ls"},
        test::KilnProgram::Arguments{"doctor"},
        test::KilnProgram::Arguments{"templates"},
        test::KilnProgram::Arguments{"wram"}}) {
    const auto finished = kiln_.run(arguments);
    for (const std::string& text : {finished.out, finished.err})
      EXPECT_THAT(text, AllOf(Not(HasSubstr("\033")), Not(HasSubstr("\r"))));
  }
}

TEST_F(ProgramTerminalTest, TablesFitItsWidth) {
  EXPECT_EQ(kiln_.run(warm_).status, 0);
  const std::string source = kiln_.write("own.cu", test::kTinySource);
  EXPECT_EQ(kiln_.run({"compile", source, "--arch", "9.0"}).status, 0);
  EXPECT_THAT(kiln_.run({"ls"}).out, HasSubstr("  own.cu: k  "));
  kiln_.set("NO_COLOR", "1");
  kiln_.unset("KILN_TEMPLATE_DIR");
  for (const test::KilnProgram::Arguments& arguments :
       std::vector<test::KilnProgram::Arguments>{
           {"ls"},
           {"stats"},
           {"templates"},
           {"templates", "attention_fwd"},
           {"compile", source, "--arch", "9.0"},
           {"why", "--template", "rmsnorm_fwd:dtype=bf16", "--arch", "9.0"},
           {"why", "--template", "scaled_softmax_fwd:dtype=bf16,max_cols=any", "--arch",
            "8.0"}}) {
    const auto finished = kiln_.run_on_terminal(arguments, "", 80);
    EXPECT_EQ(finished.status, arguments[0] == "why" ? 1 : 0) << finished.text();
    std::istringstream out(finished.out);
    for (std::string line; std::getline(out, line);)
      // With its \r; the longest parameters are one word.
      EXPECT_TRUE(line.size() <= 81 || line.find(' ') == std::string::npos)
          << arguments.back() << ": " << line;
  }
}

TEST_F(ProgramTerminalTest, ANarrowListTellsVariantsApart) {
  kiln_.set("NO_COLOR", "1");
  kiln_.unset("KILN_TEMPLATE_DIR");
  test::KilnProgram::Arguments warm{"warm", "--arch", "9.0"};
  for (const char* name :
       {"scaled_softmax_fwd", "scaled_softmax_bwd", "scaled_masked_softmax_bwd",
        "scaled_upper_triang_masked_softmax_fwd"})
    warm.insert(warm.end(), {"--template", name});
  const std::size_t wanted = kiln_.json_of(warm)["compiled"];
  EXPECT_GE(wanted, 50U);
  const std::string said = kiln_.run_on_terminal({"ls"}, "", 80).out;
  std::set<std::string> kernels;
  const std::regex row("9\\.0 +(scaled_[^ ]+)");
  for (std::sregex_iterator at(said.begin(), said.end(), row), end; at != end; ++at)
    kernels.insert((*at)[1]);
  EXPECT_EQ(kernels.size(), wanted) << said;
}

TEST_F(ProgramTerminalTest, ANarrowListHasTheColumnThatItIsSortedBy) {
  EXPECT_EQ(kiln_.run(warm_).status, 0);
  kiln_.unset("KILN_TEMPLATE_DIR");
  EXPECT_EQ(kiln_
                .run({"warm", "--template", "rmsnorm_fwd:dtype=bf16,max_cols=128",
                      "--arch", "9.0"})
                .status,
            0);
  kiln_.set("NO_COLOR", "1");
  const auto first_line = [&](const test::KilnProgram::Arguments& arguments,
                              unsigned short columns) {
    const std::string out = kiln_.run_on_terminal(arguments, "", columns).out;
    return out.substr(0, out.find('\r'));
  };
  EXPECT_THAT(first_line({"ls"}, 80), AllOf(HasSubstr("SIZE"), HasSubstr("CREATED")));
  for (const auto& [word, title] :
       {std::pair("size", "SIZE"), std::pair("used", "USED")})
    EXPECT_THAT(first_line({"ls", "--sort", word}, 60), HasSubstr(title));
}

TEST_F(ProgramTerminalTest, NoValueOfAParameterIsCutOff) {
  kiln_.set("NO_COLOR", "1");
  kiln_.unset("KILN_TEMPLATE_DIR");
  const auto shown = kiln_.run_on_terminal({"templates", "scaled_softmax_fwd"}, "", 60);
  EXPECT_THAT(shown.out, AllOf(HasSubstr("|any"), Not(HasSubstr("..."))));
}

TEST_F(ProgramTerminalTest, MessagesBreakBetweenWords) {
  using Arguments = test::KilnProgram::Arguments;
  kiln_.set("NO_COLOR", "1");
  const Arguments explain = test::words(
      "attention explain --pass bwd --dtype bf16 --batch 2 --heads 16 --sq 1024 --skv "
      "1024 --dqk 192 --dv 128 --mask causal");
  std::vector<Arguments> commands{
      {"warm", "--preset", "llama-3-8b", "--arch", "9.0", "--dry-run"},
      explain + Arguments{"--arch", "9.0", "--cudnn", "9.1.0"},
      explain + Arguments{"--arch", "9.0", "--matrix", "--cudnn", "9.1.0"},
      {"--help"},
      {"attention", "warm", "--help"}};
  const std::string verbs = kiln_.run({"--help"}).out;
  const std::regex verb("\n  ([a-z]+)  ");
  for (std::sregex_iterator at(verbs.begin(), verbs.end(), verb), end; at != end; ++at)
    commands.push_back({(*at)[1], "--help"});
  EXPECT_GE(commands.size(), 20U);
  const auto words_of = [](const std::string& text) {
    std::istringstream in(text);
    return std::vector<std::string>(std::istream_iterator<std::string>(in), {});
  };
  for (const Arguments& command : commands) {
    const std::string said = kiln_.run_on_terminal(command, "", 80).out;
    std::istringstream out(said);
    for (std::string line; std::getline(out, line);)
      EXPECT_LE(line.size(), 81U) << line;
    const auto elsewhere = kiln_.run(command);
    for (const std::string& word : words_of(elsewhere.out + elsewhere.err)) {
      if (std::isdigit(static_cast<unsigned char>(word.front())) != 0)
        continue;  // the time that it took
      EXPECT_THAT(words_of(said), testing::Contains(word)) << command.front();
    }
  }
  EXPECT_THAT(kiln_.run(commands.front()).err, HasSubstr("--profile names\n"));
}

TEST_F(ProgramTerminalTest, StatsTellsWhatItCounts) {
  EXPECT_EQ(kiln_.run(warm_).status, 0);
  EXPECT_EQ(kiln_.run(warm_).status, 0);
  kiln_.set("NO_COLOR", "1");
  const std::string shown = kiln_.run_on_terminal({"stats"}, "", 80).out;
  EXPECT_THAT(shown, AllOf(HasSubstr("MEANING"), HasSubstr("results stored")));
  const std::string elsewhere = kiln_.run({"stats"}).out;
  EXPECT_THAT(elsewhere, Not(HasSubstr("MEANING")));
  for (const std::string& out : {shown, elsewhere})
    EXPECT_THAT(out, HasSubstr("hits: 50 % of 24 look-ups"));
}

TEST_F(ProgramTerminalTest, NoColorTakesTheColoursAwayAndADumbTerminalEverything) {
  EXPECT_THAT(kiln_.run_on_terminal({"wram"}).out, HasSubstr(kColour));
  kiln_.set("NO_COLOR", "1");
  EXPECT_THAT(kiln_.run_on_terminal({"wram"}).out, Not(HasSubstr(kEscape)));
  EXPECT_THAT(kiln_.run_on_terminal({"doctor"}).out, Not(HasSubstr(kEscape)));
  // The bar may still be redrawn in its place; that is no colour.
  const std::string drawn = kiln_.run_on_terminal(warm_).out;
  EXPECT_FALSE(std::regex_search(drawn, std::regex("\033\\[[0-9;]*m"))) << drawn;
  kiln_.set("NO_COLOR", "");  // by convention as if it were not set
  EXPECT_THAT(kiln_.run_on_terminal({"wram"}).out, HasSubstr(kColour));
  kiln_.set("TERM", "dumb");
  EXPECT_THAT(kiln_.run_on_terminal({"wram"}).out, Not(HasSubstr("\033")));
  EXPECT_THAT(kiln_.run_on_terminal(warm_).out, Not(HasSubstr("\033")));
}

TEST_F(ProgramTerminalTest, WarningsOfTheLibraryAreLikeItsOwn) {
  const std::string file = kiln_.write("file", "");
  const test::KilnProgram::Arguments off{"compile",     kiln_.write("k.cu", "k"),
                                         "--arch",      "9.0",
                                         "--cache-dir", file + "/a\033[31m/cache"};
  const std::string coloured = kiln_.run_on_terminal(off, "", 60).out;
  EXPECT_THAT(coloured, HasSubstr("\033[33mkiln: warning:\033[0m the cache is off"));
  EXPECT_THAT(coloured, Not(HasSubstr(kColour)));
  kiln_.set("NO_COLOR", "1");
  const std::string plain = kiln_.run_on_terminal(off, "", 60).out;
  EXPECT_FALSE(std::regex_search(plain, std::regex("\033\\[[0-9;]*m"))) << plain;
  // Broken between words.
  EXPECT_THAT(
      plain,
      HasSubstr("kiln: warning: the cache is off, and kernels are kept in\r\nmemory"));
  EXPECT_THAT(
      kiln_.run(off).err,
      HasSubstr(
          "kiln: warning: the cache is off, and kernels are kept in memory only"));
}

TEST_F(ProgramTerminalTest, ClearAllAsksAndTakesOnlyYesForYes) {
  EXPECT_EQ(kiln_.run(warm_).status, 0);
  for (const char* answer : {"n\n", "\n", "\004", "maybe\n"}) {
    const auto refused = kiln_.run_on_terminal({"clear", "--all"}, answer);
    EXPECT_THAT(refused.out, AllOf(HasSubstr("remove all 12 entries"),
                                   HasSubstr("nothing was removed")));
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(kiln_.object_files(), SizeIs(12));
  }
  const auto agreed = kiln_.run_on_terminal({"clear", "--all"}, "y\n");
  EXPECT_EQ(agreed.status, 0) << agreed.text();
  EXPECT_THAT(kiln_.object_files(), IsEmpty());
}

TEST_F(ProgramTerminalTest, ClearByAFilterAsksAndKeysNeverDo) {
  using Arguments = test::KilnProgram::Arguments;
  EXPECT_EQ(kiln_.run(warm_).status, 0);
  for (const Arguments& filter :
       {Arguments{"--template", "tiny_fwd"},
        Arguments{"--older-than", "0s", "--template", "tiny_fwd"},
        Arguments{"--arch", "9.0", "--template", "tiny_fwd"}}) {
    const auto refused = kiln_.run_on_terminal(Arguments{"clear"} + filter, "n\n");
    EXPECT_TRUE(std::regex_search(
        refused.out, std::regex("remove 6 entries, [0-9.]+ KiB, of [^?]+\\? ")))
        << refused.text();
    EXPECT_EQ(refused.status, 1);
    EXPECT_EQ(kiln_.run(Arguments{"clear"} + filter).status, 2) << "no terminal";
    EXPECT_THAT(kiln_.object_files(), SizeIs(12));
  }
  EXPECT_THAT(kiln_.run_on_terminal({"clear", "--arch", "9.0", "--dry-run"}).out,
              AllOf(HasSubstr("would remove 12 entries"), Not(HasSubstr("?"))));
  const auto agreed = kiln_.run_on_terminal({"clear", "--template", "tiny_fwd"}, "y\n");
  EXPECT_EQ(agreed.status, 0) << agreed.text();
  EXPECT_THAT(kiln_.object_files(), SizeIs(6));
  const std::string key = kiln_.json_of({"ls"})["entries"][0]["key"];
  EXPECT_THAT(kiln_.run_on_terminal({"clear", key}).out,
              AllOf(HasSubstr("removed 1 entry"), Not(HasSubstr("?"))));
  EXPECT_EQ(kiln_.run({"clear", "--template", "tiny_bwd", "--yes"}).status, 0);
  EXPECT_THAT(kiln_.object_files(), IsEmpty());
}

TEST_F(ProgramTerminalTest, FailuresStandAboveTheBarWhole) {
  kiln_.use_fake_nvrtc("crash");
  const auto finished = kiln_.run_on_terminal(warm_);
  EXPECT_EQ(finished.status, 1);
  EXPECT_TRUE(std::regex_search(finished.out, std::regex("Segmentation\\s+fault")))
      << finished.text();
  EXPECT_THAT(finished.out, HasSubstr("12 failed"));
}

TEST_F(ProgramTerminalTest, NamesFromOutsideCannotDriveTheTerminal) {
  kiln_.write("\033[31mred.cu", test::kTinySource);
  kiln_.use_fake_nvrtc("crash");
  const auto finished = kiln_.run({"compile", "\033[31mred.cu", "--arch", "9.0"});
  EXPECT_EQ(finished.status, 1);
  EXPECT_THAT(finished.out, Not(HasSubstr("\033")));
  EXPECT_THAT(finished.err, Not(HasSubstr("\033")));
}

}  // namespace
}  // namespace kiln
