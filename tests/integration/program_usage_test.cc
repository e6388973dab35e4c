// Wrong usage of the kiln program: always exit 2, one sentence, the nearest match, and
// nothing done.

#include "tests/integration/program_usage.h"

#include <map>

#include "tests/support/paths.h"

namespace kiln {
namespace {

// In such a namespace a process can have no second thread.
TEST_F(ProgramUsageTest, WithoutASecondThreadTheReasonIsSaid) {
  // LeakSanitizer, which needs a thread too, would spin without one.
  const auto tried = kiln_.run_in_shell(
      "unshare --user --pid true || exit 77\n"
      "ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 unshare --user --pid kiln stats");
  if (tried.status == 77)
    GTEST_SKIP() << "NO USER NAMESPACES HERE: a lack of threads was not tried";
  EXPECT_EQ(tried.status, 3) << tried.text();
  EXPECT_NE(tried.err.find("cannot start a thread"), std::string::npos) << tried.err;
}

TEST_F(ProgramUsageTest, AnUnknownVerbIsAnsweredWithTheNearestOne) {
  expect_wrong({"wram", "--all"}, {"unknown verb 'wram'", "did you mean 'warm'?"});
  expect_wrong({"version", "-v"}, {"did you mean '--version'?"});
  expect_wrong({"list"}, {"unknown verb 'list'"});
  expect_wrong({"WARM"}, {"unknown verb 'WARM'"});
  expect_wrong({""}, {"unknown verb ''"});
  for (const Arguments& early :
       {Arguments{"--json", "ls"}, Arguments{"--cache-dir", "x", "ls"}}) {
    const auto finished = kiln_.run(early);
    EXPECT_EQ(finished.status, 2) << finished.text();
    EXPECT_THAT(finished.err, HasSubstr("the verb comes first: kiln VERB " + early[0]));
  }
}

TEST_F(ProgramUsageTest, AnUnknownOptionIsAnsweredWithTheNearestOne) {
  expect_wrong({"warm", "--al", "--arch", "9.0"}, {"--al", "did you mean '--all'?"});
  expect_wrong({"warm", "--quick", "--archs=9.0"}, {"--archs", "'--arch'?"});
  expect_wrong({"ls", "--quick"}, {"ls: unknown option '--quick'"});
  expect_wrong({"trim", "--maxsize", "1G"}, {"--maxsize", "'--max-size'?"});
  expect_wrong({"ls", "-x"}, {"unknown option '-x'"});
}

TEST_F(ProgramUsageTest, TwoVerbsAndStrayWordsAreRefused) {
  expect_wrong({"warm", "ls"}, {"warm: unexpected argument 'ls'"});
  expect_wrong({"ls", "extra"}, {"unexpected argument 'extra'"});
  expect_wrong({"stats", "--", "x"}, {"unexpected argument 'x'"});
  expect_wrong({"render", "a", "b"}, {"unexpected argument 'b'"});
  expect_wrong({"warm", "--quick", "--arch", "9.0", "8.0"}, {"'8.0'"});
  expect_wrong({"why", "aaaaaa", "bbbbbb", "cccccc"}, {"two keys"});
  expect_wrong({"why", "aaaaaa"}, {"two keys"});
  expect_wrong({"why"}, {"two keys"});
}

TEST_F(ProgramUsageTest, AMissingOrEmptyValueIsSaidSoAndNothingElseIsTakenForIt) {
  expect_wrong({"warm", "--quick", "--arch"}, {"--arch needs a value"});
  expect_wrong({"warm", "--arch", "", "--quick"}, {"--arch needs a value"});
  expect_wrong({"warm", "--template", "", "--arch", "9.0"},
               {"--template needs a value"});
  expect_wrong({"warm", "--template=", "--arch", "9.0"}, {"--template needs a value"});
  expect_wrong({"ls", "--cache-dir", ""},
               {"--cache-dir needs a value: --cache-dir DIR"});
  expect_wrong({"ls", "--limit"}, {"--limit needs a value"});
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  for (const char* option : {"-o", "-I", "-D", "--option", "--name", "--timeout"})
    expect_wrong({"compile", source, "--arch", "9.0", option, ""},
                 {std::string(option) + " needs a value"});
  expect_wrong({"compile", "", "--arch", "9.0"}, {"there is no file"});
  expect_wrong({"show", ""}, {"'' is no key"});
  expect_wrong({"clear", ""}, {"'' is no key"});
  expect_wrong({"show"}, {"KEY is required"});
  expect_wrong({"compile"}, {"FILE is required"});
  expect_wrong({"render"}, {"is required"});
  expect_wrong({"warm", "--arch", "9.0"}, {"name the kernels: ", "--quick"});
  expect_wrong({"warm", "--manifest", "", "--arch", "9.0"}, {"--manifest"});
}

TEST_F(ProgramUsageTest, AFlagTakesNoValueAndASingleOptionNoSecondOne) {
  expect_wrong({"warm", "--quick=5", "--arch", "9.0"}, {"--quick takes no value"});
  expect_wrong({"clear", "--all", "--yes=no"}, {"--yes takes no value"});
  expect_wrong({"ls", "--limit", "1", "--limit", "2"}, {"--limit is given twice"});
  expect_wrong({"trim", "--max-size=1G", "--max-size=2G"},
               {"--max-size is given twice"});
  const auto flag_with_value = kiln_.run({"ls", "--json=3"});
  EXPECT_EQ(flag_with_value.status, 2) << flag_with_value.text();
}

TEST_F(ProgramUsageTest, BadNumbersSizesAndDurationsAreRefused) {
  for (const char* number :
       {"abc", "-1", "1.5", "99999999999999999999999", "0x10", " 1"})
    expect_wrong({"ls", "--limit", number},
                 {"--limit", std::string("'") + number + "'"});
  for (const char* jobs : {"0", "-3", "3x", "1025", "99999999999999999999999"})
    expect_wrong({"warm", "--quick", "--arch", "9.0", "--jobs", jobs},
                 {"--jobs", std::string("'") + jobs + "'", "1 to 1024"});
  for (const char* size :
       {"abc", "-5", "99999999999999999999999G", "1.2.3G", "5Q", "nan"})
    expect_wrong({"trim", "--max-size", size}, {"is not a size"});
  expect_wrong({"trim", "--max-size", "5"}, {"'5' has no unit", "5GiB"});
  for (const char* time : {"5q", "-5", "1e9", "99999999999999999999999", "inf"})
    expect_wrong({"warm", "--quick", "--arch", "9.0", "--timeout", time},
                 {"is not a duration"});
  expect_wrong({"warm", "--quick", "--arch", "9.0", "--timeout", "0"}, {"time limit"});
  expect_wrong({"clear", "--older-than", "-1d"}, {"is not a duration"});
  for (const char* more : {"--dry-run", "--yes"})
    expect_wrong({"clear", "--older-than", "5", more},
                 {"the duration '5' has no unit; write 5d, 5h or 5s"});
  expect_wrong({"doctor", "--profile", "p.json", "--device", "x"}, {"--device"});
  expect_wrong({"doctor", "--device", "0"}, {"--device goes with --profile"});
  for (const char* shard : {"1", "1/", "-1/2", "0/0", "both"})
    expect_wrong({"warm", "--quick", "--arch", "9.0", "--shard", shard},
                 {"--shard", std::string("'") + shard + "'", "0/4"});
  expect_wrong({"warm", "--quick", "--arch", "9.0", "--shard", "2/2"}, {"0 to 1"});
  expect_wrong({"warm", "--quick", "--arch", "9.0", "--shard", "auto"},
               {"SLURM_ARRAY_TASK_ID", "SLURM_NODEID", "JOB_COMPLETION_INDEX"});
}

TEST_F(ProgramUsageTest, BadEnvironmentVariablesAreNamed) {
  const auto expect_named = [this](const std::string& name, const std::string& value) {
    kiln_.set(name, value);
    expect_wrong({"ls"}, {name, value});
    kiln_.unset(name);
  };
  expect_named("KILN_CACHE_SIZE", "lots");
  expect_named("KILN_CACHE_SIZE", "10");
  expect_named("KILN_PCH_SIZE", "2");
  expect_named("KILN_COMPILE_TIMEOUT", "0");
  expect_named("KILN_COMPILE_TIMEOUT", "soon");
  expect_named("KILN_WORKER_MEMORY", "-1");
  expect_named("KILN_JOBS", "0");
  expect_named("KILN_JOBS", "many");
  expect_named("KILN_NO_JIT", "perhaps");
  expect_named("KILN_TRUSTED_UIDS", "root");
  expect_named("KILN_TRUSTED_GIDS", "wheel");
  expect_named("KILN_REMOTE_WAIT", "soon");
  expect_named("KILN_ATTENTION", "flash");
  expect_named("KILN_SEED", "/a;sined");
  expect_named("KILN_LOG", "loud");
}

TEST_F(ProgramUsageTest, UnknownWordsOfAListAreAnsweredWithTheNearestOne) {
  expect_wrong({"stats", "--format", "xml"}, {"'xml'", "openmetrics", "prometheus"});
  expect_wrong({"ls", "--sort", "szie"}, {"'szie'", "created", "did you mean 'size'?"});
  expect_wrong({"warm", "--template", "softmx", "--arch", "9.0"},
               {"no template 'softmx'", "did you mean 'softmax'?"});
  expect_wrong({"warm", "--template", "scaled_sofmax_fwd", "--arch", "9.0"},
               {"did you mean 'scaled_softmax_fwd'?"});
  expect_wrong({"render", "scaled_sofmax_fwd:dtype=bf16"}, {"'scaled_softmax_fwd'?"});
  expect_wrong({"templates", "scaled_softmax_fwdd"}, {"'scaled_softmax_fwd'?"});
  expect_wrong({"ls", "--template", "scaled_sofmax_fwd"}, {"'scaled_softmax_fwd'?"});
  expect_wrong({"clear", "--template", "softmx", "--yes"}, {"'softmax'?"});
  expect_wrong({"warm", "--template", "scaled_softmax_fwd:dtyp=bf16", "--arch", "9.0"},
               {"no parameter 'dtyp'", "did you mean 'dtype'?"});
  expect_wrong({"render", "scaled_softmax_fwd:dtype=bf17"},
               {"'bf17'", "f16, bf16, f32", "did you mean 'bf16'?"});
  expect_wrong({"render", "scaled_softmax_fwd"}, {"'dtype' is required"});
  expect_wrong({"render", "scaled_softmax_fwd:dtype"}, {"has no '='"});
  expect_wrong({"render", "scaled_softmax_fwd:dtype=f16,dtype=f32"}, {"given twice"});
}

TEST_F(ProgramUsageTest, NothingIsRemovedWithoutASelectionAndAYes) {
  expect_wrong({"clear"}, {"name the entries to remove"});
  expect_wrong({"clear", "--yes"}, {"name the entries to remove"});
  expect_wrong({"clear", "--all"}, {"--yes"});
  for (const Arguments& filter :
       {Arguments{"--template", "softmax"}, Arguments{"--arch", "9.0"},
        Arguments{"--older-than", "30d"}})
    expect_wrong(Arguments{"clear"} + filter, {"add --yes to confirm, or --dry-run"});
  expect_wrong({"clear", "--all", "--arch", "9.0", "--yes"}, {"exclude each other"});
  expect_wrong({"clear", "--precompiled", "--arch", "9.0"}, {"exclude each other"});
  expect_wrong({"clear", "--all", "abcdef", "--yes"}, {"exclude each other"});
}

TEST_F(ProgramUsageTest, OptionsThatContradictEachOtherAreRefused) {
  kiln_.use_fake_nvrtc();
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  expect_wrong({"compile", source, "--arch", "9.0,8.0", "-o", "k.cubin"}, {"-o"});
  expect_wrong({"compile", source, "--arch", "9.0", "--option", "-arch=sm_80"},
               {"refused", "the target follows from"});
  expect_wrong({"show", "abcdef", "--log", "--ptx"}, {"one"});
  expect_wrong({"why", "aaaaaa", "bbbbbb", "--template", "x"}, {"two keys"});
}

TEST_F(ProgramUsageTest, ValuesThatBeginWithADashAreValues) {
  kiln_.use_fake_nvrtc();
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  kiln_.write("-odd.cu", test::kTinySource);
  for (const Arguments& accepted :
       {Arguments{"compile", source, "--arch", "9.0", "--option", "--maxrregcount=64"},
        Arguments{"compile", source, "--arch", "9.0", "--option=--use_fast_math"},
        Arguments{"compile", "--arch", "9.0", "--", "-odd.cu"},
        Arguments{"compile", source, "--arch=9.0", "-DA=-1", "-D", "B", "-I", "."}}) {
    const auto finished = kiln_.run(accepted);
    EXPECT_EQ(finished.status, 0) << finished.text();
  }
  expect_failure({"warm", "--quick", "--arch", "--all"}, 2,
                 {"'--all' is not an architecture"});
  expect_failure({"clear", "--", "--all"}, 2, {"'--all' is no key"});
}

TEST_F(ProgramUsageTest, AnOptionTakesOneValueAndIsRepeatedForMore) {
  kiln_.use_fake_nvrtc();
  const std::string templates = test::write_tiny_templates(kiln_);
  const auto document = kiln_.json_of(
      {"warm", "--template-dir", templates, "--template", "tiny_fwd:dtype=bf16",
       "--template", "tiny_bwd:dtype=bf16", "--arch", "8.0", "--arch", "9.0,8.0"});
  EXPECT_EQ(document["requested"], 8);  // two kernels, two `wide`, two architectures
  EXPECT_EQ(document["compiled"], 8);
}

TEST_F(ProgramUsageTest, HelpOfEveryVerbNamesEveryOptionAndNothingElse) {
  const std::map<std::string, std::vector<std::string>> options{
      {"warm",
       {"--all", "--quick", "--template", "--manifest", "--arch", "--profile", "--jobs",
        "--timeout", "--dry-run", "--fail-fast", "--events", "--template-dir"}},
      {"ls", {"--arch", "--template", "--name", "--file", "--sort", "--limit"}},
      {"events", {"FILE", "--limit"}},
      {"ps", {}},
      {"show", {"KEY", "--source", "--log", "--preimage", "--ptx", "--extract"}},
      {"why", {"KEY", "--template", "--manifest", "--arch", "-I", "--std", "--name"}},
      {"verify", {"--quarantine", "--name", "--file"}},
      {"trim", {"--max-size"}},
      {"clear",
       {"KEY", "--all", "--arch", "--template", "--older-than", "--dry-run", "--yes"}},
      {"stats", {}},
      {"compile",
       {"FILE", "--arch", "-I", "-D", "--option", "--std", "--name", "-o",
        "--timeout"}},
      {"render", {"NAME"}},
      {"templates", {"NAME"}},
      {"attention",
       {"ACTION", "--arch", "--profile", "--cudnn", "--pass", "--mask", "--cp",
        "--matrix"}},
      {"inspect", {"PATH", "--python", "--pid", "--arch", "--driver"}},
      {"doctor", {"--profile", "--compare"}}};
  const auto overview = kiln_.run({"--help"});
  EXPECT_EQ(overview.status, 0);
  EXPECT_EQ(kiln_.run({}).out, overview.out);
  EXPECT_THAT(overview.out, HasSubstr("\nUsage: kiln VERB [OPTIONS]\n"));
  for (const auto& [verb, names] : options) {
    EXPECT_THAT(overview.out, HasSubstr("\n  " + verb + " "));
    const auto help = kiln_.run({verb, "--help"});
    EXPECT_EQ(help.status, 0) << help.text();
    EXPECT_THAT(help.err, IsEmpty());
    EXPECT_THAT(help.out, HasSubstr("\nUsage: kiln " + verb + " "));
    for (const std::string& name : names)
      EXPECT_THAT(help.out, HasSubstr(name)) << verb;
    for (const char* name : {"--help", "--cache-dir", "--json"})
      EXPECT_THAT(help.out, HasSubstr(name)) << verb;
    // What the option parser would print of itself.
    for (const char* noise : {"UINT", "TEXT", "(0x)", "REQUIRED", " in ["})
      EXPECT_THAT(help.out, Not(HasSubstr(noise))) << verb;
    EXPECT_EQ(kiln_.run({"help", verb}).out, help.out);
    EXPECT_EQ(kiln_.run({verb, "-h"}).out, help.out);
  }
  EXPECT_THAT(kiln_.run({"--version"}).out, StartsWith("kiln "));
  EXPECT_EQ(kiln_.run({"help", "help"}).out, overview.out);
  const auto extra = kiln_.run({"help", "warm", "ls"});
  EXPECT_EQ(extra.status, 2);
  EXPECT_THAT(extra.err, HasSubstr("unexpected argument 'ls'"));
  const auto wrong = kiln_.run({"help", "wram"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'warm'?"));
}

TEST_F(ProgramUsageTest, HelpOfAnActionHasNoOptionOfAnother) {
  const std::string all = kiln_.run({"attention", "--help"}).out;
  const std::string explain = kiln_.run({"attention", "explain", "--help"}).out;
  const std::string warm = kiln_.run({"attention", "warm", "--help"}).out;
  const std::string why = kiln_.run({"attention", "why", "--help"}).out;
  for (const char* name : {"--matrix", "--cudnn ", "--dry-run", "--jobs", "--cp "})
    EXPECT_THAT(all, HasSubstr(std::string("\n  ") + name));
  const auto has = [](const std::string& help, const std::string& name) {
    return help.find("\n  " + name) != std::string::npos;
  };
  EXPECT_TRUE(has(explain, "--matrix") && !has(explain, "--dry-run"));
  EXPECT_TRUE(has(warm, "--dry-run") && !has(warm, "--matrix"));
  EXPECT_FALSE(has(why, "--matrix") || has(why, "--dry-run") || has(why, "--cp "));
  for (const std::string& help : {explain, warm, why})
    EXPECT_TRUE(has(help, "--pass") && has(help, "--cache-dir")) << help;
}

TEST_F(ProgramUsageTest, AStderrThatTakesNothingStopsNothing) {
  const std::string manifest =
      kiln_.write("bad.jsonl", "{\"source\":\"no kernel at all\",\"arch\":\"9.0\"}\n");
  for (const char* closed : {"2>/dev/full", "2>&-"}) {
    const std::string program = std::string(test::paths::kProgram) + " ";
    const std::string root = " --cache-dir " + kiln_.cache_dir().native();
    const auto status = [&](const std::string& words) {
      return WEXITSTATUS(
          std::system((program + words + root + " >/dev/null " + closed).c_str()));
    };
    EXPECT_EQ(status("warm --manifest " + manifest), 1) << closed;
    EXPECT_EQ(status("ls --foo"), 2) << closed;
    EXPECT_EQ(status("ls"), 0) << closed;
  }
}

TEST_F(ProgramUsageTest, OutputThatIsLostIsNoSuccess) {
  const std::string program = test::paths::kProgram;
  EXPECT_EQ(WEXITSTATUS(std::system(
                (program + " templates --json >/dev/full 2>/dev/null").c_str())),
            1);
  EXPECT_EQ(
      WEXITSTATUS(std::system((program + " --help >/dev/full 2>/dev/null").c_str())),
      1);
}

}  // namespace
}  // namespace kiln
