// Wrong usage of the kiln program: always exit 2, one sentence, the nearest match, and
// nothing done.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace kiln {
namespace {

using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Arguments = test::KilnProgram::Arguments;

class ProgramUsageTest : public testing::Test {
 protected:
  /// `arguments` fail before any work: the status, one sentence with `words` in it on
  /// stderr, and with --json the same as a document on stdout.
  void expect_failure(const Arguments& arguments, int status,
                      const std::vector<std::string>& words) {
    Arguments with_json = arguments;
    with_json.insert(with_json.begin() + 1, "--json");
    const test::Finished finished = kiln_.run(with_json);
    SCOPED_TRACE(testing::PrintToString(arguments) + " " + finished.text());
    EXPECT_EQ(finished.status, status);
    EXPECT_THAT(finished.err, StartsWith("kiln: "));
    const std::string sentence = finished.err.substr(0, finished.err.find('\n'));
    for (const std::string& word : words) EXPECT_THAT(sentence, HasSubstr(word));
    // The sentence, and at most a pointer to the help.
    EXPECT_LE(std::count(finished.err.begin(), finished.err.end(), '\n'), 2);
    const auto document = finished.json();
    ASSERT_TRUE(document.is_object() && document.contains("error"));
    EXPECT_EQ(document.size(), 1U);
    EXPECT_EQ("kiln: " + document["error"]["message"].get<std::string>(), sentence);
    EXPECT_THAT(document["error"]["code"].get<std::string>(), Not(IsEmpty()));
  }
  void expect_wrong(const Arguments& arguments, const std::vector<std::string>& words) {
    expect_failure(arguments, 2, words);
    EXPECT_THAT(kiln_.object_files(), IsEmpty());
  }

  test::KilnProgram kiln_;
};

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
  expect_wrong({"warm", "--arch", "9.0"}, {"say what to build", "--quick"});
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
  expect_wrong({"doctor", "--profile", "p.json", "--device", "x"}, {"--device"});
}

TEST_F(ProgramUsageTest, BadEnvironmentVariablesAreNamed) {
  const auto expect_named = [this](const std::string& name, const std::string& value) {
    kiln_.set(name, value);
    expect_wrong({"ls"}, {name});
    kiln_.unset(name);
  };
  expect_named("KILN_CACHE_SIZE", "lots");
  expect_named("KILN_COMPILE_TIMEOUT", "0");
  expect_named("KILN_COMPILE_TIMEOUT", "soon");
  expect_named("KILN_WORKER_MEMORY", "-1");
  expect_named("KILN_JOBS", "0");
  expect_named("KILN_JOBS", "many");
  expect_named("KILN_NO_JIT", "perhaps");
  expect_named("KILN_TRUSTED_UIDS", "root");
  expect_named("KILN_LOG", "loud");
}

TEST_F(ProgramUsageTest, UnknownWordsOfAListAreAnsweredWithTheNearestOne) {
  expect_wrong({"ls", "--sort", "szie"}, {"'szie'", "created", "did you mean 'size'?"});
  expect_wrong({"warm", "--template", "softmx", "--arch", "9.0"},
               {"no template 'softmx'", "did you mean 'softmax'?"});
  expect_wrong({"warm", "--template", "scaled_sofmax_fwd", "--arch", "9.0"},
               {"did you mean 'scaled_softmax_fwd'?"});
  expect_wrong({"render", "scaled_sofmax_fwd:dtype=bf16"}, {"'scaled_softmax_fwd'?"});
  expect_wrong({"templates", "scaled_softmax_fwdd"}, {"'scaled_softmax_fwd'?"});
  expect_wrong({"ls", "--template", "scaled_sofmax_fwd"}, {"'scaled_softmax_fwd'?"});
  expect_wrong({"clear", "--template", "softmx"}, {"'softmax'?"});
  expect_wrong({"warm", "--template", "scaled_softmax_fwd:dtyp=bf16", "--arch", "9.0"},
               {"no parameter 'dtyp'", "did you mean 'dtype'?"});
  expect_wrong({"render", "scaled_softmax_fwd:dtype=bf17"},
               {"'bf17'", "f16, bf16, f32", "did you mean 'bf16'?"});
  expect_wrong({"render", "scaled_softmax_fwd"}, {"'dtype' is required"});
  expect_wrong({"render", "scaled_softmax_fwd:dtype"}, {"has no '='"});
  expect_wrong({"render", "scaled_softmax_fwd:dtype=f16,dtype=f32"}, {"there twice"});
}

TEST_F(ProgramUsageTest, ArchitecturesThatNobodyEverHadAreRefused) {
  for (const char* form : {"foo", "9", "9.", ".9", "sm_", "sm90", "9.0b", "9.0,",
                           "-9.0", "9.00", "090", "9.0 a", "native9"})
    expect_wrong({"warm", "--quick", "--arch", form}, {"'" + std::string(form)});
  for (const char* never : {"9.9", "1.0", "8.0a", "9.0f", "99.0", "sm_123"})
    expect_wrong({"warm", "--quick", "--arch", never}, {"no NVRTC ever built for"});
  expect_wrong({"warm", "--quick", "--arch", "8.0,9.9"}, {"9.9"});
  expect_wrong({"ls", "--arch", "nine"}, {"'nine' is not an architecture"});
  expect_wrong(
      {"why", "--template", "scaled_softmax_fwd:dtype=bf16", "--arch", "8.0,9.0"},
      {"one architecture at a time"});
}

TEST_F(ProgramUsageTest, WithoutADeviceAnArchitectureMustBeNamed) {
  if (!kiln_.run({"doctor", "--json"}).json()["devices"].empty())
    GTEST_SKIP() << "there is a device here";
  expect_wrong({"warm", "--quick"}, {"no NVIDIA device", "--arch"});
  expect_wrong({"warm", "--quick", "--arch", "native"}, {"no NVIDIA device"});
  expect_wrong({"ls", "--arch", "native"}, {"no NVIDIA device"});
}

TEST_F(ProgramUsageTest, AKeyIsAtLeastSixHexDigits) {
  for (const char* key : {"abc", "12345", "zzzzzz", "0x1234", "g123456"})
    expect_wrong({"show", key}, {"is no key"});
  expect_wrong({"clear", "abcde"}, {"is no key"});
  expect_wrong({"why", "abcdef", "abc"}, {"no key"});
  expect_wrong({"show", std::string(65, 'a')}, {"is no key"});
}

TEST_F(ProgramUsageTest, AnUnknownKeyIsExitOneForTheCommandLineWasRight) {
  expect_failure({"show", "abcdef"}, 1, {"there is no key abcdef"});
  expect_failure({"show", std::string(64, 'a')}, 1, {"no key"});
  expect_failure({"why", "abcdef", "fedcba"}, 1, {"no key"});
  expect_failure({"clear", "abcdef"}, 1, {"no key"});
}

TEST_F(ProgramUsageTest, AFileThatIsNotThereIsNamed) {
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  expect_wrong({"compile", "none.cu", "--arch", "9.0"}, {"none.cu"});
  expect_wrong({"compile", kiln_.folder(), "--arch", "9.0"}, {"is not a regular file"});
  expect_wrong({"warm", "--manifest", "none.jsonl", "--arch", "9.0"}, {"none.jsonl"});
  expect_wrong({"warm", "--quick", "--profile", "none.json"}, {"none.json"});
  expect_wrong({"warm", "--quick", "--profile", "h100-smx"}, {"'h100-sxm'?"});
  expect_wrong({"doctor", "--compare", "none.json"}, {"none.json"});
  expect_wrong({"templates", "--template-dir", "none"}, {"none"});
  // Where the output would go is looked at before the work.
  expect_wrong({"compile", source, "--arch", "9.0", "-o", "none/k.cubin"},
               {"-o none/k.cubin", "there is no folder"});
  expect_wrong({"compile", source, "--arch", "9.0", "-o", kiln_.folder()}, {"folder"});
  expect_wrong({"warm", "--quick", "--arch", "9.0", "--events", "none/e"},
               {"--events"});
}

// Root may read everything, but not the end of a link that leads to itself.
TEST_F(ProgramUsageTest, AFileThatCannotBeReadIsWrongInputToo) {
  const auto loop = [this](const std::string& name) {
    std::filesystem::create_symlink(name, kiln_.folder() / name);
    return "./" + name;
  };
  const std::string manifest = loop("loop.jsonl");
  const std::string preset = loop("loop.toml");
  const std::string profile = loop("loop.json");
  const std::string source = loop("loop.cu");
  expect_wrong({"warm", "--manifest", manifest, "--arch", "9.0"}, {"loop.jsonl"});
  expect_wrong({"warm", "--preset", preset, "--arch", "9.0"}, {"loop.toml"});
  expect_wrong({"warm", "--quick", "--profile", profile}, {"loop.json"});
  expect_wrong({"compile", source, "--arch", "9.0"}, {"loop.cu"});
  expect_wrong({"doctor", "--compare", profile}, {"loop.json"});
}

TEST_F(ProgramUsageTest, AManifestsBadLineIsNamedByItsNumber) {
  const auto expect_line = [this](const std::string& text, const std::string& place,
                                  const std::string& why) {
    kiln_.write("m.jsonl", text);
    expect_wrong({"warm", "--manifest", "m.jsonl", "--arch", "9.0"},
                 {"m.jsonl:" + place, why});
  };
  const std::string good =
      R"({"template":"scaled_softmax_fwd","params":{"dtype":"bf16"}})";
  expect_line(good + "\n\n{oops\n", "3", "not JSON");
  expect_line("[]\n", "1", "object");
  expect_line(good + "\n{\"tempalte\":\"x\"}\n", "2", "did you mean 'template'?");
  expect_line("{\"params\":{}}\n", "1", "neither");
  expect_line("{\"template\":\"x\",\"source\":\"y\"}\n", "1", "exclude");
  expect_line("{\"source\":\"x\",\"arch\":\"ninety\"}\n", "1", "'ninety'");
  expect_line("{\"source\":\"x\",\"arch\":\"9.9\"}\n", "1", "9.9");
  expect_line(good + "\n{\"template\":\"scaled_sofmax_fwd\"}\n", "2",
              "did you mean 'scaled_softmax_fwd'?");
  expect_line("{\"template\":\"scaled_softmax_fwd\",\"params\":{\"dtype\":\"b\"}}\n",
              "1", "'dtype' cannot be 'b'");
  expect_line("{\"template\":\"b\"}\n" + good + "\n{\"template\":\"c\"}\n", "1",
              "; 1 more of its lines are wrong: 3");
  expect_line("{\"source\":\"x\",\"options\":[\"--gpu-architecture=sm_80\"]}\n", "1",
              "refused");
  expect_line("", "", "no request");
  expect_line("\n  \n", "", "no request");
}

TEST_F(ProgramUsageTest, NothingIsRemovedWithoutASelectionAndAYes) {
  expect_wrong({"clear"}, {"say what to remove"});
  expect_wrong({"clear", "--yes"}, {"say what to remove"});
  expect_wrong({"clear", "--all"}, {"--yes"});
  expect_wrong({"clear", "--all", "--arch", "9.0", "--yes"}, {"exclude each other"});
  expect_wrong({"clear", "--all", "abcdef", "--yes"}, {"exclude each other"});
}

TEST_F(ProgramUsageTest, OptionsThatContradictEachOtherAreRefused) {
  kiln_.use_fake_nvrtc();
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  expect_wrong({"compile", source, "--arch", "9.0,8.0", "-o", "k.cubin"}, {"-o"});
  expect_wrong({"compile", source, "--arch", "9.0", "--option", "-arch=sm_80"},
               {"refused", "the target is that of"});
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

TEST_F(ProgramUsageTest, WhatTheEnvironmentLacksIsExitThree) {
  const auto doctor = kiln_.run({"doctor", "--json"}).json();
  const std::string templates = test::write_tiny_templates(kiln_);
  kiln_.use_fake_nvrtc();  // an NVRTC 13: it begins at 7.5
  expect_failure({"warm", "--template-dir", templates, "--quick", "--arch", "7.0"}, 3,
                 {"7.0", "12.9"});
  expect_failure({"warm", "--template-dir", templates, "--quick", "--arch", "9.0,7.0"},
                 3, {"7.0"});
  kiln_.set("KILN_NVRTC", "/nowhere/libnvrtc.so");
  expect_failure({"compile", kiln_.write("k.cu", test::kTinySource), "--arch", "9.0"},
                 3, {"/nowhere/libnvrtc.so"});
  kiln_.unset("KILN_NVRTC");
  kiln_.set("KILN_TOOLCHAIN", "1.0");
  expect_failure({"warm", "--quick", "--arch", "9.0"}, 3,
                 {"KILN_TOOLCHAIN is 1.0", "known: nvrtc-"});
  kiln_.unset("KILN_TOOLCHAIN");
  kiln_.set("KILN_WORKER", "/nowhere/kiln-worker");
  const auto worker =
      kiln_.run({"compile", kiln_.write("k.cu", test::kTinySource), "--arch", "9.0"});
  EXPECT_THAT(worker.status, AnyOf(Eq(1), Eq(3))) << worker.text();
  EXPECT_THAT(worker.err, HasSubstr("/nowhere/kiln-worker"));
  EXPECT_THAT(kiln_.object_files(), IsEmpty());
}

TEST_F(ProgramUsageTest, HelpOfEveryVerbNamesEveryOptionAndNothingElse) {
  const std::map<std::string, std::vector<std::string>> options{
      {"warm",
       {"--all", "--quick", "--template", "--manifest", "--arch", "--profile", "--jobs",
        "--timeout", "--dry-run", "--fail-fast", "--events", "--template-dir"}},
      {"ls", {"--arch", "--template", "--sort", "--limit"}},
      {"show", {"KEY", "--source", "--log", "--preimage", "--ptx", "--extract"}},
      {"why", {"KEY", "--template", "--arch"}},
      {"verify", {"--quarantine"}},
      {"trim", {"--max-size"}},
      {"clear",
       {"KEY", "--all", "--arch", "--template", "--older-than", "--dry-run", "--yes"}},
      {"stats", {}},
      {"compile",
       {"FILE", "--arch", "-I", "-D", "--option", "--name", "-o", "--timeout"}},
      {"render", {"NAME"}},
      {"templates", {"NAME"}},
      {"attention",
       {"ACTION", "--arch", "--profile", "--cudnn", "--pass", "--mask", "--cp",
        "--matrix"}},
      {"doctor", {"--profile", "--compare"}}};
  const auto overview = kiln_.run({"--help"});
  EXPECT_EQ(overview.status, 0);
  EXPECT_EQ(kiln_.run({}).out, overview.out);
  for (const auto& [verb, names] : options) {
    EXPECT_THAT(overview.out, HasSubstr("\n  " + verb + " "));
    const auto help = kiln_.run({verb, "--help"});
    EXPECT_EQ(help.status, 0) << help.text();
    EXPECT_THAT(help.err, IsEmpty());
    EXPECT_THAT(help.out, HasSubstr("kiln " + verb));
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
