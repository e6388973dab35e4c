// The main job: `kiln warm` builds what is missing, and accounts for every request.

#include "tests/integration/program_warm.h"

#include <fmt/format.h>

#include <fstream>
#include <set>

#include "tests/support/test.h"

namespace kiln {
namespace {

using testing::Ge;

TEST_F(ProgramWarmTest, ASourceThatIsRefusedNamesItsLineOnce) {
  const auto manifest =
      kiln_.write("m.jsonl", R"({"source":"","options":["--optix-ir"]})"
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

TEST_F(ProgramWarmTest, AnArchitectureThatNothingIsForIsNoSilentSuccess) {
  kiln_.use_fake_nvrtc();
  const std::string templates = test::write_tiny_templates(kiln_);
  const test::KilnProgram::Arguments command{"warm",       "--template-dir", templates,
                                             "--template", "tiny_bwd",       "--arch"};
  const auto none = kiln_.run(command + test::KilnProgram::Arguments{"7.5"});
  EXPECT_EQ(none.status, 2) << none.text();
  EXPECT_THAT(none.err, HasSubstr("no requested kernel is for 7.5: tiny_bwd needs "
                                  "compute capability 8.0 or higher"));
  const auto one = kiln_.run(command + test::KilnProgram::Arguments{"7.5,8.0"});
  EXPECT_EQ(one.status, 0) << one.text();
  EXPECT_THAT(one.err, HasSubstr("warning: no requested kernel is for 7.5"));
  EXPECT_THAT(one.err, Not(HasSubstr("is for 8.0")));
}

TEST_F(ProgramWarmTest, AnArchitectureThatNoDeviceAsksForIsWarnedOf) {
  kiln_.use_fake_nvrtc();
  const std::string templates = test::write_tiny_templates(kiln_);
  const auto warned = kiln_.run({"warm", "--template-dir", templates, "--template",
                                 "tiny_fwd:dtype=bf16", "--arch", "8.0,9.0a"});
  EXPECT_EQ(warned.status, 0) << warned.text();
  EXPECT_THAT(warned.err, HasSubstr("no device asks for tiny_fwd:dtype=bf16,wide="));
  EXPECT_THAT(warned.err, HasSubstr(" and 1 more for 9.0a: a device of that kind asks "
                                    "for 9.0; write --arch 9.0\n"));
  const auto right = kiln_.run({"warm", "--template-dir", templates, "--template",
                                "tiny_fwd:dtype=bf16", "--arch", "8.0,9.0"});
  EXPECT_THAT(right.err, Not(HasSubstr("no device asks")));
  // A program can name this target for a source, which may not compile for another.
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  EXPECT_THAT(kiln_.run({"compile", source, "--arch", "9.0a"}).err,
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

TEST_F(ProgramWarmTest, ShardsTogetherBuildEachKeyOnce) {
  kiln_.use_fake_nvrtc();
  const std::string templates = test::write_tiny_templates(kiln_);
  const test::KilnProgram::Arguments all{
      "warm", "--template-dir", templates, "--template", "tiny", "--arch", "9.0"};
  std::set<std::string> built;
  for (int shard = 0; shard < 3; ++shard) {
    const json report = kiln_.json_of(
        all + test::KilnProgram::Arguments{"--shard", fmt::format("{}/3", shard)});
    expect_sums(report);
    EXPECT_EQ(report["compiled"], report["requested"]);
    EXPECT_EQ(report["shard"]["index"], shard);
    EXPECT_EQ(report["shard"]["count"], 3);
    EXPECT_EQ(report["shard"]["elsewhere"].get<int>() + report["requested"].get<int>(),
              12);
    for (const std::string& key : keys_of(report))
      EXPECT_TRUE(built.insert(key).second) << "in two shards";
  }
  EXPECT_THAT(built, SizeIs(12));
  EXPECT_EQ(kiln_.json_of(all)["hits"], 12);
  kiln_.set("JOB_COMPLETION_INDEX", "1");
  kiln_.set("KILN_SHARDS", "3");
  const auto named = kiln_.run(all + test::KilnProgram::Arguments{"--shard", "auto"});
  EXPECT_THAT(named.err, HasSubstr("shard 1/3 (--shard auto, JOB_COMPLETION_INDEX and "
                                   "KILN_SHARDS): "));
}

TEST_F(ProgramWarmTest, AShardWithNothingToDoIsDone) {
  kiln_.use_fake_nvrtc();
  const std::string manifest = write_sources(1);
  int requested = 0;
  for (const char* shard : {"0/2", "1/2"})
    requested +=
        kiln_.json_of({"warm", "--manifest", manifest, "--shard", shard})["requested"]
            .get<int>();
  EXPECT_EQ(requested, 1);
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

}  // namespace
}  // namespace kiln
