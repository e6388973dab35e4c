// The main job: `kiln warm` builds what is missing, accounts for every request, and can
// be interrupted, killed, repeated and run twice at once.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <set>

#include "tests/support/processes.h"
#include "tests/support/program.h"

namespace kiln {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::operator+;
using testing::Each;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class ProgramWarmTest : public testing::Test {
 protected:
  /// A manifest of `count` different small sources for 9.0.
  std::string write_sources(int count) {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      lines += json{{"source",
                     fmt::format("__global__ void k{}(int* x) {{ *x = {}; }}", i, i)},
                    {"arch", "9.0"}}
                   .dump() +
               "\n";
    }
    return kiln_.write("sources.jsonl", lines);
  }

  static void expect_sums(const json& report) {
    EXPECT_EQ(report["requested"].get<int>(),
              report["hits"].get<int>() + report["compiled"].get<int>() +
                  report["waited"].get<int>() + report["failed"].get<int>())
        << report.dump(1);
    EXPECT_EQ(report["requested"], report["entries"].size());
  }

  static std::set<std::string> keys_of(const json& report) {
    std::set<std::string> keys;
    for (const json& entry : report["entries"]) keys.insert(entry["key"]);
    return keys;
  }

  test::KilnProgram kiln_;
};

TEST_F(ProgramWarmTest, ASourceThatIsRefusedNamesItsLineOnce) {
  const auto manifest = kiln_.write("m.jsonl", R"({"source":"","options":["--pch"]})"
                                               "\n");
  const auto refused = kiln_.run({"warm", "--manifest", manifest, "--arch", "9.0"});
  EXPECT_EQ(refused.status, 2);
  const auto place = manifest + ":1: ";
  const auto first = refused.err.find(place);
  EXPECT_NE(first, std::string::npos) << refused.err;
  EXPECT_EQ(refused.err.find(place, first + 1), std::string::npos) << refused.err;
}

TEST_F(ProgramWarmTest, QuickForTwoArchitecturesBuildsEachKernelOnceAndThenNone) {
  const json first = kiln_.json_of({"warm", "--quick", "--arch", "8.0,9.0"});
  expect_sums(first);
  EXPECT_THAT(first["requested"].get<int>(), Ge(4));
  EXPECT_EQ(first["compiled"], first["requested"]);
  EXPECT_EQ(first["not_stored"], 0);
  EXPECT_EQ(keys_of(first).size(), first["requested"]);
  for (const json& entry : first["entries"]) {
    EXPECT_EQ(entry["outcome"], "compiled");
    EXPECT_EQ(entry["stored"], true);
    EXPECT_THAT(entry["arch"], testing::AnyOf("8.0", "9.0"));
    EXPECT_TRUE(entry["error"].is_null());
  }

  const json second = kiln_.json_of({"warm", "--quick", "--arch", "9.0,sm_80"});
  expect_sums(second);
  EXPECT_EQ(second["compiled"], 0);
  EXPECT_EQ(second["hits"], first["requested"]);
  EXPECT_EQ(keys_of(second), keys_of(first));
  EXPECT_EQ(kiln_.json_of({"ls"})["entries"].size(), first["requested"]);
  const json counters = kiln_.json_of({"stats"})["counters"];
  EXPECT_EQ(counters["compiled"], first["requested"]);
  EXPECT_EQ(counters["hits"], first["requested"]);
}

TEST_F(ProgramWarmTest, SelectionsAddUpAndEqualRequestsCountOnce) {
  kiln_.use_fake_nvrtc();
  const std::string templates = test::write_tiny_templates(kiln_);
  kiln_.write("m.jsonl",
              "{\"template\":\"tiny_fwd\",\"params\":{\"dtype\":\"bf16\"}}\n"
              "{\"template\":\"tiny_fwd\",\"params\":{\"dtype\":\"bf16\","
              "\"wide\":false}}\n");
  const json report = kiln_.json_of(
      {"warm", "--template-dir", templates, "--template", "tiny", "--template",
       "tiny_fwd:dtype=bf16", "--manifest", "m.jsonl", "--arch", "9.0,9.0,sm_90"});
  expect_sums(report);
  EXPECT_EQ(report["requested"], 12);
  EXPECT_EQ(report["compiled"], 12);
}

TEST_F(ProgramWarmTest, APresetBuildsWhatAModelsTrainingAsksForAndThenNothing) {
  kiln_.use_fake_nvrtc();
  const std::vector<std::string> command{"warm", "--preset", "llama-3-8b", "--arch",
                                         "9.0"};
  const json first = kiln_.json_of(command);
  expect_sums(first);
  EXPECT_EQ(first["compiled"], first["requested"]);
  std::set<std::string> templates;
  for (const json& entry : first["entries"]) {
    templates.insert(entry["template"]);
    EXPECT_EQ(entry["params"]["dtype"], "bf16");
  }
  for (const char* const kernel :
       {"rope_fwd", "rope_bwd", "rmsnorm_fwd", "rmsnorm_bwd", "swiglu_fwd",
        "swiglu_bwd", "cross_entropy_fwd", "scaled_upper_triang_masked_softmax_fwd",
        "attention_fwd", "attention_bwd"})
    EXPECT_EQ(templates.count(kernel), 1U) << kernel;
  EXPECT_EQ(kiln_.json_of(command)["hits"], first["requested"]);
  const auto without =
      kiln_.run(command + test::KilnProgram::Arguments{"--no-attention"});
  EXPECT_THAT(without.err, HasSubstr("llama-3-8b: without attention"));
  EXPECT_THAT(without.out, HasSubstr(fmt::format("{} requested",
                                                 first["requested"].get<int>() - 2)));
}

TEST_F(ProgramWarmTest, APresetSaysForWhichSizesAndWhatOfTheModelIsMissing) {
  kiln_.use_fake_nvrtc();
  const auto said =
      kiln_.run({"warm", "--preset", "gemma-2-9b", "--arch", "9.0", "--dry-run"});
  EXPECT_EQ(said.status, 0) << said.text();
  EXPECT_THAT(said.err, testing::AllOf(HasSubstr("for every batch"),
                                       HasSubstr("of batch 1 and length 8192"),
                                       HasSubstr("gemma-2-9b: not the whole model: "),
                                       HasSubstr("soft cap")));
}

TEST_F(ProgramWarmTest, APresetOfOnesOwnIsAFileAndAWrongOneIsWrongUsage) {
  kiln_.use_fake_nvrtc();
  const std::string mine = kiln_.write(
      "mine.toml", "schema = 1\ndtype = \"f32\"\n[loss]\nvocabulary = 1000\n");
  const json report = kiln_.json_of({"warm", "--preset", mine, "--arch", "9.0"});
  ASSERT_THAT(report["entries"], SizeIs(3));  // in one pass, and in two
  EXPECT_EQ(report["entries"][0]["template"], "cross_entropy_fwd");
  EXPECT_EQ(report["entries"][2]["template"], "cross_entropy_bwd");
  const auto unknown = kiln_.run({"warm", "--preset", "llama-3-9b", "--arch", "9.0"});
  EXPECT_EQ(unknown.status, 2) << unknown.text();
  EXPECT_THAT(unknown.err, HasSubstr("did you mean 'llama-3-8b'?"));
  const std::string wrong = kiln_.write("wrong.toml", "schema = 1\n");
  EXPECT_EQ(kiln_.run({"warm", "--preset", wrong, "--arch", "9.0"}).status, 2);
}

TEST_F(ProgramWarmTest, WhatATargetLimitExcludesIsSkippedAndNoFailure) {
  kiln_.use_fake_nvrtc();
  const std::string templates = test::write_tiny_templates(kiln_);
  const json report = kiln_.json_of(
      {"warm", "--template-dir", templates, "--template", "tiny", "--arch", "7.5,8.0"});
  expect_sums(report);
  EXPECT_EQ(report["skipped"], 6);
  EXPECT_EQ(report["requested"], 18);
  EXPECT_EQ(report["failed"], 0);
}

TEST_F(ProgramWarmTest, AnArchitectureThatNoDeviceAsksForIsWarnedOf) {
  kiln_.use_fake_nvrtc();
  const std::string templates = test::write_tiny_templates(kiln_);
  const auto warned = kiln_.run({"warm", "--template-dir", templates, "--template",
                                 "tiny_fwd:dtype=bf16", "--arch", "8.0,9.0a"});
  EXPECT_EQ(warned.status, 0) << warned.text();
  EXPECT_THAT(warned.err, HasSubstr("no device asks for tiny_fwd:dtype=bf16,wide="));
  EXPECT_THAT(warned.err, HasSubstr(" and 1 more for 9.0a: one of that kind asks for "
                                    "9.0; write --arch 9.0\n"));
  const auto right = kiln_.run({"warm", "--template-dir", templates, "--template",
                                "tiny_fwd:dtype=bf16", "--arch", "8.0,9.0"});
  EXPECT_THAT(right.err, Not(HasSubstr("no device asks")));
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  EXPECT_THAT(kiln_.run({"compile", source, "--arch", "9.0a"}).err,
              HasSubstr("k.cu for 9.0a: one of that kind"));
  EXPECT_THAT(kiln_.run({"compile", source, "--arch", "9.0a", "-o", "k.cubin"}).err,
              Not(HasSubstr("no device asks")));
}

TEST_F(ProgramWarmTest, ADryRunBuildsNothingAndSaysWhatIsMissing) {
  kiln_.use_fake_nvrtc();
  const std::string templates = test::write_tiny_templates(kiln_);
  const test::KilnProgram::Arguments wanted{
      "warm", "--template-dir", templates, "--arch", "9.0", "--template"};
  auto one = wanted;
  one.emplace_back("tiny_fwd:dtype=f16,wide=true");
  EXPECT_EQ(kiln_.json_of(one)["compiled"], 1);
  auto all = wanted;
  all.insert(all.end(), {"tiny", "--dry-run"});
  const json report = kiln_.json_of(all);
  EXPECT_EQ(report["requested"], 12);
  EXPECT_EQ(report["hits"], 1);
  EXPECT_EQ(report["compiled"], 0);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_EQ(report["missing"], 11);
  EXPECT_THAT(kiln_.run(all).out, HasSubstr("11 missing"));
  EXPECT_THAT(kiln_.object_files(), SizeIs(1));
}

TEST_F(ProgramWarmTest, ADryRunLeavesNoTraceInAnEmptyPlace) {
  kiln_.use_fake_nvrtc();
  const std::string templates = test::write_tiny_templates(kiln_);
  EXPECT_EQ(kiln_
                .run({"warm", "--template-dir", templates, "--template", "tiny",
                      "--arch", "9.0", "--dry-run"})
                .status,
            0);
  EXPECT_FALSE(std::filesystem::exists(kiln_.cache_dir()));
}

TEST_F(ProgramWarmTest, AManifestHasTemplatesAndSourcesAndArchMustNameThatOfALine) {
  const std::string manifest = kiln_.write(
      "m.jsonl",
      "{\"template\":\"scaled_softmax_fwd\",\"params\":{\"dtype\":\"bf16\","
      "\"max_cols\":128},\"arch\":\"8.0\"}\n"
      "{\"source\":\"#include \\\"a.h\\\"\\ntemplate<class T> __global__ void k(T* x) "
      "{*x = A;}\",\"headers\":{\"a.h\":\"#define A 3\"},\"options\":[\"-DB=1\"],"
      "\"names\":[\"k<float>\"],\"arch\":\"sm_90\"}\n");
  const json report = kiln_.json_of({"warm", "--manifest", manifest});
  expect_sums(report);
  EXPECT_EQ(report["compiled"], 2);
  EXPECT_EQ(report["entries"][0]["template"], "scaled_softmax_fwd");
  EXPECT_EQ(report["entries"][0]["params"]["max_cols"], "128");
  EXPECT_EQ(report["entries"][0]["arch"], "8.0");
  EXPECT_EQ(report["entries"][1]["file"], manifest + ":2/kernel.cu");
  EXPECT_EQ(report["entries"][1]["arch"], "9.0");
  // Each for its own, although both are asked for.
  const json both =
      kiln_.json_of({"warm", "--manifest", manifest, "--arch", "8.0,9.0", "--dry-run"});
  EXPECT_EQ(both["requested"], 2);
  EXPECT_EQ(both["hits"], 2);
  const auto refused = kiln_.run({"warm", "--manifest", manifest, "--arch", "8.0"});
  EXPECT_EQ(refused.status, 2) << refused.text();
  EXPECT_THAT(refused.err,
              HasSubstr(manifest + ":2: this line has \"arch\": \"9.0\", and 8.0 is "
                                   "asked for; leave one of the two out"));
  kiln_.use_fake_nvrtc();
  kiln_.write(
      "old.jsonl",
      "{\"source\":\"__global__ void k(int* x) { *x = 1; }\",\"arch\":\"5.0\"}\n");
  EXPECT_EQ(kiln_.run({"warm", "--manifest", "old.jsonl"}).status, 3);
  EXPECT_EQ(kiln_.run({"warm", "--manifest", "old.jsonl", "--arch", "9.0"}).status, 2);
}

TEST_F(ProgramWarmTest, AWaiterSaysWhomItWaitsForAndThatItWaitsNoLonger) {
  // What this compiler is, is known from now on: a worker is one that builds, under the
  // lock.
  kiln_.use_fake_nvrtc();
  kiln_.compiled(test::kTinySource);
  kiln_.use_fake_nvrtc("hang");
  const std::string manifest = write_sources(1);
  const auto builder = kiln_.start({"warm", "--manifest", manifest});
  ASSERT_TRUE(
      test::eventually(60s, [&] { return !test::children_of(builder.pid()).empty(); }));
  kiln_.use_fake_nvrtc();
  auto waiter = kiln_.start({"warm", "--manifest", manifest});
  const std::string who = fmt::format("process {} has been ", builder.pid());
  EXPECT_TRUE(test::eventually(30s, [&] {
    return waiter.err_so_far().find(who) != std::string::npos;
  })) << waiter.err_so_far();
  builder.signal(SIGSTOP);  // no heartbeat from now on
  const auto finished = waiter.finish(60s);
  builder.signal(SIGKILL);
  EXPECT_EQ(finished.status, 0) << finished.text();
  EXPECT_THAT(finished.out, HasSubstr("1 compiled"));
  EXPECT_THAT(finished.err, HasSubstr("without waiting any longer"));
}

TEST_F(ProgramWarmTest, AFailureIsOneItemsAndFailFastStopsTheRest) {
  std::string lines = "{\"source\":\"not C++\"}\n";
  for (int i = 0; i < 4; ++i)
    lines += fmt::format("{{\"source\":\"__global__ void k{}() {{}}\"}}\n", i);
  const std::string manifest = kiln_.write("m.jsonl", lines);
  const json fast = kiln_.json_of(
      {"warm", "--manifest", manifest, "--arch", "9.0", "--jobs", "1", "--fail-fast"},
      1);
  expect_sums(fast);
  EXPECT_EQ(fast["compiled"], 0);
  EXPECT_EQ(fast["failed"], 5);
  EXPECT_EQ(fast["entries"][0]["error"]["code"], "compile_failed");
  EXPECT_EQ(fast["entries"][4]["error"]["code"], "cancelled");

  const json all = kiln_.json_of({"warm", "--manifest", manifest, "--arch", "9.0"}, 1);
  expect_sums(all);
  EXPECT_EQ(all["compiled"], 4);
  EXPECT_EQ(all["failed"], 1);
  EXPECT_THAT(all["entries"][0]["error"]["message"].get<std::string>(),
              HasSubstr("kernel.cu(1): error"));
  EXPECT_EQ(all["entries"][0]["stored"], false);
  // Nothing of a failure stays: the same again is the same again.
  EXPECT_EQ(kiln_.json_of({"warm", "--manifest", manifest, "--arch", "9.0"}, 1)["hits"],
            4);
}

TEST_F(ProgramWarmTest, EventsAreOneLineABuildAppended) {
  kiln_.use_fake_nvrtc();
  const std::string templates = test::write_tiny_templates(kiln_);
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(kiln_
                  .run({"warm", "--template-dir", templates, "--template", "tiny_fwd",
                        "--arch", "9.0", "--events", "events.jsonl"})
                  .status,
              0);
  }
  std::ifstream file(kiln_.folder() / "events.jsonl");
  std::vector<std::string> outcomes;
  for (std::string line; std::getline(file, line);) {
    const json event = json::parse(line);
    EXPECT_EQ(event["event"], "done");
    EXPECT_THAT(event["time"].get<std::string>(),
                testing::MatchesRegex("[0-9-]{10}T[0-9:]{8}Z"));
    EXPECT_THAT(event["name"].get<std::string>(), HasSubstr("tiny_fwd:dtype="));
    EXPECT_EQ(event["arch"], "9.0");
    outcomes.push_back(event["outcome"]);
  }
  ASSERT_THAT(outcomes, SizeIs(12));
  EXPECT_THAT(std::vector(outcomes.begin(), outcomes.begin() + 6), Each("compiled"));
  EXPECT_THAT(std::vector(outcomes.begin() + 6, outcomes.end()), Each("hit"));
}

TEST_F(ProgramWarmTest, TwoAtOnceCompileEachKeyOnce) {
  const std::string manifest = write_sources(10);
  auto a = kiln_.start({"warm", "--manifest", manifest, "--json"});
  auto b = kiln_.start({"warm", "--manifest", manifest, "--json"});
  const json first = a.finish().json();
  const json second = b.finish().json();
  expect_sums(first);
  expect_sums(second);
  EXPECT_EQ(first["compiled"].get<int>() + second["compiled"].get<int>(), 10)
      << first.dump(1) << second.dump(1);
  EXPECT_EQ(kiln_.json_of({"stats"})["counters"]["compiled"], 10);
}

TEST_F(ProgramWarmTest, NothingIsBuiltWhereNothingCanBeStored) {
  kiln_.use_fake_nvrtc("crash");  // a build would be a failure of its own
  const std::string manifest = write_sources(2);
  const std::string file = kiln_.write("file", "");
  const test::KilnProgram::Arguments off{"--cache-dir", file + "/cache"};
  const json refused =
      kiln_.json_of({"warm", "--manifest", manifest, off[0], off[1]}, 3);
  EXPECT_EQ(refused["error"]["code"], "unavailable");
  EXPECT_THAT(refused["error"]["message"].get<std::string>(),
              testing::AllOf(HasSubstr("nothing is built"), HasSubstr(file),
                             HasSubstr("0 of the 2")));
  // What cannot be stored may still be wanted for its log or its image.
  kiln_.use_fake_nvrtc();
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  const json report =
      kiln_.json_of({"compile", source, "--arch", "9.0", off[0], off[1]}, 1);
  expect_sums(report);
  EXPECT_EQ(report["compiled"], 1);
  EXPECT_EQ(report["not_stored"], 1);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_EQ(report["entries"][0]["outcome"], "compiled");
  EXPECT_EQ(report["entries"][0]["stored"], false);
  EXPECT_TRUE(report["entries"][0]["error"].is_object());
}

TEST_F(ProgramWarmTest, TheToolchainIsRecordedAndWhyShowsIt) {
  EXPECT_EQ(kiln_
                .run({"warm", "--template", "scaled_softmax_fwd:dtype=f16,max_cols=128",
                      "--arch", "8.0"})
                .status,
            0);
  const json listed = kiln_.json_of({"ls"});
  const auto toolchain = listed["entries"][0]["toolchain"].get<std::string>();
  const auto why =
      kiln_.run({"why", "--template", "scaled_softmax_fwd:dtype=f16,max_cols=128",
                 "--arch", "8.0"});
  EXPECT_EQ(why.status, 0) << why.text();
  EXPECT_THAT(why.out, HasSubstr(toolchain));
  // KILN_NVRTC beats the record, and that is said; without it the record names it.
  kiln_.unset("KILN_NVRTC");
  EXPECT_THAT(kiln_.run({"doctor"}).out, HasSubstr("the last warm recorded it"));
  kiln_.use_fake_nvrtc();
  const auto other =
      kiln_.run({"warm", "--template", "scaled_softmax_fwd:dtype=f16,max_cols=128",
                 "--arch", "8.0", "--dry-run"});
  EXPECT_THAT(other.err, HasSubstr("this cache was warmed with " + toolchain));
}

TEST_F(ProgramWarmTest, WithoutItsNvrtcAWarmedCacheIsServedAndAMissIsExitThree) {
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  EXPECT_EQ(kiln_.run({"compile", source, "--arch", "9.0"}).status, 0);
  kiln_.set("KILN_NO_JIT", "1");
  const json hit = kiln_.json_of({"compile", source, "--arch", "9.0"});
  EXPECT_EQ(hit["hits"], 1);
  const json miss = kiln_.json_of({"compile", source, "--arch", "8.0"}, 3);
  EXPECT_EQ(miss["failed"], 1);
  EXPECT_EQ(miss["entries"][0]["error"]["code"], "unavailable");
  EXPECT_THAT(miss["entries"][0]["error"]["message"].get<std::string>(),
              HasSubstr("KILN_NO_JIT"));
}

TEST_F(ProgramWarmTest, AnEndlessBuildTimesOutAndIsCountedAsFailed) {
  kiln_.use_fake_nvrtc();
  EXPECT_EQ(kiln_.run({"doctor"}).status & ~1, 0);  // its version is known from here on
  kiln_.use_fake_nvrtc("hang");
  const json report =
      kiln_.json_of({"warm", "--manifest", write_sources(1), "--timeout", "500ms"}, 1);
  expect_sums(report);
  EXPECT_EQ(report["failed"], 1);
  EXPECT_EQ(report["entries"][0]["outcome"], "timeout");
  EXPECT_EQ(report["entries"][0]["error"]["code"], "timeout");
}

/// A warm in mid-build, then `signal`: what it leaves.
class ProgramInterruptTest : public ProgramWarmTest,
                             public testing::WithParamInterface<int> {};

TEST_P(ProgramInterruptTest, StopsTheBuildsPrintsWhatWasDoneAndIsResumed) {
  kiln_.use_fake_nvrtc();
  const std::string manifest = write_sources(5);
  // The last two: what the cache has is found before anything is built.
  kiln_.write("two.jsonl",
              "{\"source\":\"__global__ void k3(int* x) { *x = 3; }\"}\n"
              "{\"source\":\"__global__ void k4(int* x) { *x = 4; }\"}\n");
  EXPECT_EQ(
      kiln_.json_of({"warm", "--manifest", "two.jsonl", "--arch", "9.0"})["compiled"],
      2);
  kiln_.use_fake_nvrtc("hang");
  auto running = kiln_.start({"warm", "--manifest", manifest, "--jobs", "2", "--json"});
  std::vector<pid_t> workers;
  ASSERT_TRUE(test::eventually(60s, [&] {
    workers = test::children_of(running.pid());
    return workers.size() >= 2;
  }));
  running.signal(GetParam());
  const auto stopped = running.finish(30s);
  EXPECT_EQ(stopped.status, 128 + GetParam()) << stopped.text();
  const json report = stopped.json();
  expect_sums(report);
  EXPECT_EQ(report["requested"], 5);
  EXPECT_EQ(report["hits"], 2);
  EXPECT_EQ(report["failed"], 3);
  EXPECT_EQ(report["entries"][2]["error"]["code"], "cancelled");
  EXPECT_THAT(stopped.err, HasSubstr("2 of 5 in the cache, 3 to build"));
  for (const pid_t worker : workers)
    EXPECT_TRUE(test::eventually(5s, [&] { return !test::is_running(worker); }));

  kiln_.use_fake_nvrtc();
  const json resumed = kiln_.json_of({"warm", "--manifest", manifest});
  EXPECT_EQ(resumed["hits"], 2);
  EXPECT_EQ(resumed["compiled"], 3);
}

TEST_F(ProgramWarmTest, AStoppedOneSaysThatTheSameCommandGoesOn) {
  kiln_.use_fake_nvrtc("hang");
  auto running = kiln_.start({"warm", "--manifest", write_sources(1)});
  ASSERT_TRUE(
      test::eventually(60s, [&] { return !test::children_of(running.pid()).empty(); }));
  ASSERT_TRUE(test::eventually(
      60s, [&] { return running.err_so_far().find("to build") != std::string::npos; }));
  running.signal(SIGINT);
  const auto stopped = running.finish(30s);
  EXPECT_EQ(stopped.status, 128 + SIGINT) << stopped.text();
  EXPECT_THAT(stopped.out, testing::AllOf(HasSubstr("1 not reached"),
                                          HasSubstr("goes on from here")));
}

TEST_P(ProgramInterruptTest, EndsTheQuestionToACompilerThatDoesNotAnswer) {
  kiln_.use_fake_nvrtc("hang-version");
  auto running =
      kiln_.start({"warm", "--manifest", write_sources(1), "--arch", "8.0,9.0"});
  ASSERT_TRUE(
      test::eventually(60s, [&] { return !test::children_of(running.pid()).empty(); }));
  running.signal(GetParam());
  const auto stopped = running.finish(10s);
  EXPECT_EQ(stopped.status, 128 + GetParam()) << stopped.text();
}

INSTANTIATE_TEST_SUITE_P(Signals, ProgramInterruptTest,
                         testing::Values(SIGINT, SIGTERM), [](const auto& test) {
                           return test.param == SIGINT ? "Sigint" : "Sigterm";
                         });

TEST_F(ProgramWarmTest, AKilledProgramLeavesNoWorkerBehind) {
  kiln_.use_fake_nvrtc();
  EXPECT_EQ(kiln_.run({"doctor"}).status & ~1, 0);
  kiln_.use_fake_nvrtc("hang");
  auto running = kiln_.start({"warm", "--manifest", write_sources(2), "--jobs", "2"});
  std::vector<pid_t> workers;
  ASSERT_TRUE(test::eventually(60s, [&] {
    workers = test::children_of(running.pid());
    return workers.size() >= 2;
  }));
  running.signal(SIGKILL);
  for (const pid_t worker : workers)
    EXPECT_TRUE(test::eventually(5s, [&] { return !test::is_running(worker); }));
  EXPECT_EQ(running.finish().status, 128 + SIGKILL);
}

}  // namespace
}  // namespace kiln
