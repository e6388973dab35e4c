// What `kiln VERB --help` looks like: groups, examples.

#include <regex>
#include <set>

#include "tests/integration/program_usage.h"

namespace kiln {
namespace {

using Matches = std::sregex_iterator;

class ProgramHelpTest : public ProgramUsageTest {
 protected:
  std::vector<std::string> verbs() {
    static const std::regex verb("\n  ([a-z]+)  ");
    const std::string overview = kiln_.run({"--help"}).out;
    std::vector<std::string> names;
    for (Matches at(overview.begin(), overview.end(), verb), end; at != end; ++at)
      names.push_back((*at)[1]);
    EXPECT_GE(names.size(), 20U);
    return names;
  }
};

TEST_F(ProgramHelpTest, OptionsStandInGroupsOfWhichTheCacheAndTheFleetAreTheLast) {
  static const std::regex heading("\n\n([A-Z][a-z ]+):\n  -");
  for (const std::string& verb : verbs()) {
    const std::string help = kiln_.run({verb, "--help"}).out;
    SCOPED_TRACE(help);
    std::vector<std::string> groups;
    for (Matches at(help.begin(), help.end(), heading), end; at != end; ++at)
      groups.push_back((*at)[1]);
    ASSERT_GE(groups.size(), 2U);
    EXPECT_EQ(groups[groups.size() - 2], "Output");
    EXPECT_EQ(groups.back(), "Cache and fleet");
    EXPECT_THAT(groups, Not(Contains("Options")));
    EXPECT_EQ(std::set(groups.begin(), groups.end()).size(), groups.size());
    EXPECT_LT(help.find("\n  --json"), help.find("Cache and fleet"));
    EXPECT_GT(help.find("\n  --cache-dir"), help.find("Cache and fleet"));
    EXPECT_THAT(help, Not(HasSubstr("\n\n\n")));
    for (const char* everywhere :
         {"-q,--quiet", "-v,--verbose", "--color WHEN", "-h,--help"})
      EXPECT_THAT(help, HasSubstr(std::string("\n  ") + everywhere + " "));
  }
}

TEST_F(ProgramHelpTest, ExamplesHaveOptionsThatThereAre) {
  static const std::regex example("\n  kiln ([a-z]+)( .*)");
  static const std::regex option(" (--?[a-zA-Z][a-z-]*)");
  for (const std::string verb :
       {"warm", "compile", "ls", "show", "why", "clear", "pack", "run", "push", "pull",
        "attention", "stats", "doctor"}) {
    const std::string help = kiln_.run({verb, "--help"}).out;
    int examples = 0;
    for (Matches at(help.begin(), help.end(), example), end; at != end; ++at) {
      ++examples;
      EXPECT_EQ((*at)[1], verb);
      std::string words = (*at)[2];
      words = words.substr(0, words.find(" -- "));
      for (Matches in(words.begin(), words.end(), option); in != end; ++in)
        EXPECT_TRUE(std::regex_search(
            help, std::regex("\n  (-[a-z],)?" + (*in)[1].str() + "[ \n]")))
            << (*at)[0] << " has " << (*in)[1];
    }
    EXPECT_GE(examples, 2) << verb;
  }
}

TEST_F(ProgramHelpTest, WordsOfOtherProgramsAreAnsweredWithTheVerb) {
  const std::vector<std::pair<std::string, std::string>> answers{
      {"list", "'ls'"},
      {"rm", "'clear' or 'trim'"},
      {"gc", "'clear' or 'trim'"},
      {"config", "'doctor'"},
      {"info", "'stats'"},
      {"export", "'pack'"},
      {"import", "'unpack'"},
      {"explain", "'why'"},
      {"top", "'ps'"},
      {"log", "'events'"},
      {"exec", "'run'"},
      {"check", "'verify'"},
      {"build", "'compile' or 'warm'"}};
  const auto known = verbs();
  for (const auto& [word, verb] : answers) {
    expect_wrong({word}, {"unknown verb '" + word + "', did you mean " + verb + "?"});
    EXPECT_THAT(known, Not(Contains(word)));
  }
  // No word at all is closer than a word that is noise.
  for (const char* nothing : {"--std", "--sted", "--foo"})
    EXPECT_THAT(kiln_.run({"ls", nothing}).err, Not(HasSubstr("did you mean")));
  EXPECT_THAT(kiln_.run({"templates", "nope"}).err, Not(HasSubstr("did you mean")));
}

}  // namespace
}  // namespace kiln
