// --quiet and --verbose: what stands on stderr beside errors.

#include <string>

#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

class ProgramQuietTest : public testing::Test {
 protected:
  using Arguments = test::KilnProgram::Arguments;

  void SetUp() override {
    kiln_.use_fake_nvrtc();
    kiln_.set("TERM", "xterm");
    kiln_.set("KILN_TEMPLATE_DIR", test::write_tiny_templates(kiln_));
  }

  test::KilnProgram kiln_;
  const Arguments warm_{"warm", "--template", "tiny", "--arch", "9.0"};
};

TEST_F(ProgramQuietTest, QuietLeavesNotesAndProgressOut) {
  for (const Arguments& words :
       {warm_, Arguments{"ls"}, Arguments{"ls", "--name", "none"}, Arguments{"ps"},
        Arguments{"key", "new", "signing.key"}}) {
    const auto quiet = kiln_.run(words + Arguments{"--quiet"});
    EXPECT_EQ(quiet.status, 0) << quiet.text();
    EXPECT_THAT(quiet.err, IsEmpty()) << words.front();
    if (words.front() == "key")
      continue;
    const auto loud = kiln_.run(words);
    EXPECT_EQ(loud.status, 0) << loud.text();
    EXPECT_EQ(loud.err.empty(), words == warm_) << "the second has nothing to say";
    EXPECT_TRUE(loud.out == quiet.out || words == warm_) << "hits, and times";
  }
  EXPECT_EQ(kiln_.run({"clear", "--all", "--yes"}).status, 0);
  const std::string drawn = kiln_.run_on_terminal(warm_ + Arguments{"-q"}).out;
  EXPECT_THAT(drawn, Not(HasSubstr("\033")));
  EXPECT_THAT(drawn, Not(HasSubstr("to build")));
  EXPECT_THAT(drawn, HasSubstr("12 requested"));
}

TEST_F(ProgramQuietTest, QuietKeepsErrorsWarningsAndQuestions) {
  EXPECT_EQ(kiln_.run(warm_).status, 0);
  EXPECT_THAT(kiln_.run_on_terminal({"clear", "--all", "-q"}, "n\n").out,
              HasSubstr("remove all 12 entries"));
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  EXPECT_THAT(kiln_
                  .run({"compile", source, "--arch", "9.0", "-q", "--cache-dir",
                        kiln_.write("file", "") + "/cache"})
                  .err,
              HasSubstr("kiln: warning: the cache is off"));
  kiln_.use_fake_nvrtc("crash");
  const auto failed = kiln_.run({"compile", source, "--arch", "8.0", "-q"});
  EXPECT_EQ(failed.status, 1);
  EXPECT_THAT(failed.err, HasSubstr("k.cu 8.0: "));
  EXPECT_THAT(kiln_.run({"show", "-q", "abcdef"}).err, HasSubstr("no key abcdef"));
}

TEST_F(ProgramQuietTest, VerboseLogsEachBuildUnlessTheEnvironmentHasALevel) {
  kiln_.write("k.cu", test::kTinySource);
  const Arguments compile{"compile", "k.cu", "--arch", "9.0"};
  const auto built = kiln_.run(compile + Arguments{"-v"});
  EXPECT_THAT(built.err, HasSubstr("kiln: info: built k.cu: k for 9.0 in "));
  EXPECT_THAT(built.err, HasSubstr("kiln: info: kernels: 1 built in "));
  constexpr const char* kFound = "kiln: info: kernels: 1 from disk\n";
  EXPECT_EQ(kiln_.run(compile + Arguments{"--verbose"}).err, kFound);
  EXPECT_THAT(kiln_.run(compile).err, IsEmpty());
  kiln_.set("KILN_LOG", "info");
  EXPECT_EQ(kiln_.run(compile).err, kFound);
  EXPECT_THAT(kiln_.run(compile + Arguments{"-q"}).err, IsEmpty());
  kiln_.set("KILN_LOG", "error");
  EXPECT_THAT(kiln_.run(compile + Arguments{"-v"}).err, IsEmpty());
}

TEST_F(ProgramQuietTest, VerboseWritesNoEventTwice) {
  EXPECT_EQ(kiln_.run(warm_ + Arguments{"-v", "--events", "events.jsonl"}).status, 0);
  const auto sums = kiln_.json_of({"events", kiln_.folder() / "events.jsonl"});
  EXPECT_EQ(sums["events"], 12);
}

TEST_F(ProgramQuietTest, BothAtOnceAreWrongUsage) {
  for (const char* verb : {"ls", "warm", "doctor", "ps"}) {
    const auto both = kiln_.run({verb, "-q", "--verbose", "--json"});
    EXPECT_EQ(both.status, 2) << both.text();
    EXPECT_THAT(both.json()["error"]["message"].get<std::string>(),
                HasSubstr("--quiet and --verbose exclude each other"));
  }
}

}  // namespace
}  // namespace kiln
