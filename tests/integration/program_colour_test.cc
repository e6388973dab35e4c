// When the program writes colours: on a terminal, unless the environment or --color
// says otherwise.

#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

class ProgramColourTest : public testing::Test {
 protected:
  using Arguments = test::KilnProgram::Arguments;

  static bool is_coloured(const std::string& text) {
    static const std::regex colour("\033\\[[0-9;]*m");
    return std::regex_search(text, colour);
  }

  test::KilnProgram kiln_;
};

TEST_F(ProgramColourTest, TheEnvironmentAndThenColorDecide) {
  using Variables = std::map<std::string, std::string>;
  struct Case {
    Variables variables;
    Arguments options;
    bool on_terminal;
    bool elsewhere;
  };
  const std::vector<Case> cases{
      {{}, {}, true, false},
      {{{"NO_COLOR", "1"}}, {}, false, false},
      {{{"NO_COLOR", "0"}}, {}, false, false},
      {{{"NO_COLOR", ""}}, {}, true, false},
      {{{"TERM", "dumb"}}, {}, false, false},
      {{{"FORCE_COLOR", "1"}}, {}, true, true},
      {{{"CLICOLOR_FORCE", "yes"}}, {}, true, true},
      {{{"CLICOLOR_FORCE", "0"}}, {}, true, false},
      {{{"FORCE_COLOR", ""}}, {}, true, false},
      {{{"FORCE_COLOR", "1"}, {"TERM", "dumb"}}, {}, true, true},
      {{{"FORCE_COLOR", "1"}, {"NO_COLOR", "1"}}, {}, false, false},
      {{{"NO_COLOR", "1"}}, {"--color", "always"}, true, true},
      {{{"TERM", "dumb"}}, {"--color=always"}, true, true},
      {{{"FORCE_COLOR", "1"}}, {"--color", "never"}, false, false},
      {{}, {"--color", "auto"}, true, false},
  };
  for (const auto& [variables, options, on_terminal, elsewhere] : cases) {
    kiln_.set("TERM", "xterm");
    for (const auto& [name, value] : variables) kiln_.set(name, value);
    // A wrong verb, help, a verb; the option before it or behind it.
    for (const Arguments& words :
         {options + Arguments{"wram"}, Arguments{"ls", "--help"} + options,
          Arguments{"help", "ls"} + options, Arguments{"show", "abcdef"} + options}) {
      SCOPED_TRACE(testing::PrintToString(variables) + testing::PrintToString(words));
      EXPECT_EQ(is_coloured(kiln_.run_on_terminal(words).out), on_terminal);
      const auto finished = kiln_.run(words);
      EXPECT_EQ(is_coloured(finished.out + finished.err), elsewhere);
    }
    for (const auto& [name, value] : variables) kiln_.unset(name);
  }
}

TEST_F(ProgramColourTest, HelpHasBoldHeadingsAndColouredOptions) {
  const std::string help = kiln_.run({"clear", "--help", "--color", "always"}).out;
  for (const char* part :
       {"\n\033[1mUsage:\033[0m kiln clear", "\n\033[1mCache and fleet:\033[0m\n",
        "\n  \033[36m--older-than DURATION\033[0m   ",
        "\n  \033[36mkiln clear --all --yes\033[0m   ", "\n\033[1mExamples:\033[0m\n"})
    EXPECT_THAT(help, HasSubstr(part));
  EXPECT_THAT(kiln_.run({"--color", "always", "--help"}).out,
              HasSubstr("\n  \033[36mwarm\033[0m  "));
  EXPECT_EQ(std::regex_replace(help, std::regex("\033\\[[0-9]*m"), ""),
            kiln_.run({"clear", "--help"}).out);
}

TEST_F(ProgramColourTest, JsonHasNone) {
  for (const Arguments& words :
       {Arguments{"ls", "--json"}, Arguments{"doctor", "--json"},
        Arguments{"wram", "--json"}, Arguments{"templates", "--json"}})
    EXPECT_FALSE(is_coloured(kiln_.run(words + Arguments{"--color", "always"}).out));
}

TEST_F(ProgramColourTest, AWrongOrDoubleChoiceIsWrongUsageWhereverItStands) {
  for (const Arguments& words :
       {Arguments{"--color", "ls"}, Arguments{"--color=alway", "ls"},
        Arguments{"ls", "--color"}, Arguments{"ls", "--color", ""},
        Arguments{"ls", "--color="}, Arguments{"ls", "--color", "yes"},
        Arguments{"--color", "auto", "ls", "--color=auto"}}) {
    Arguments with_json = words;
    with_json.insert(std::ranges::find(with_json, "ls") + 1, "--json");
    const auto finished = kiln_.run(with_json);
    SCOPED_TRACE(finished.text());
    EXPECT_EQ(finished.status, 2);
    EXPECT_THAT(finished.err, HasSubstr("--color"));
    EXPECT_TRUE(finished.json().contains("error"));
  }
  EXPECT_THAT(kiln_.run({"--color=alway", "ls"}).err,
              HasSubstr("did you mean 'always'"));
}

TEST_F(ProgramColourTest, TheOptionsOfAProgramBehindDashesAreItsOwn) {
  const auto finished =
      kiln_.run({"--color", "never", "run", "--", "echo", "--color", "loud"});
  EXPECT_EQ(finished.status, 0) << finished.text();
  EXPECT_EQ(finished.out, "--color loud\n");
}

}  // namespace
}  // namespace kiln
