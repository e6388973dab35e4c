// `kiln warm` where it cannot go on: failures, time limits, nothing to store into,
// signals, a kill, and another one at the same time.

#include <fmt/format.h>

#include <csignal>
#include <filesystem>

#include "tests/integration/program_warm.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

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
  EXPECT_THAT(finished.err, HasSubstr(" s, and has given no sign of life for "));
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
                             HasSubstr("0 of 2")));
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

TEST_F(ProgramWarmTest, ADryRunExitsWithThreeWhereARunCouldMakeNoCache) {
  kiln_.use_fake_nvrtc();
  const std::string manifest = write_sources(1);
  const test::KilnProgram::Arguments run{"warm", "--manifest", manifest};
  kiln_.unset("KILN_CACHE_DIR");
  kiln_.set("HOME", "/proc");
  for (const auto& arguments : {run, run + test::KilnProgram::Arguments{"--dry-run"}}) {
    const auto refused = kiln_.run(arguments);
    EXPECT_EQ(refused.status, 3) << refused.text();
    EXPECT_THAT(refused.err, testing::AllOf(HasSubstr("0 of 1"), HasSubstr("/proc")));
  }
  // Where a cache can be made, nothing is.
  const std::string home = kiln_.folder() / "home";
  std::filesystem::create_directory(home);
  kiln_.set("HOME", home);
  const json dry = kiln_.json_of(run + test::KilnProgram::Arguments{"--dry-run"});
  EXPECT_EQ(dry["missing"], 1);
  EXPECT_TRUE(std::filesystem::is_empty(home));
}

TEST_F(ProgramWarmTest, AnEndlessBuildTimesOutAndIsCountedAsFailed) {
  kiln_.use_fake_nvrtc();
  kiln_.compiled(test::kTinySource);  // its version is known from here on
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
  kiln_.compiled(test::kTinySource);
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
