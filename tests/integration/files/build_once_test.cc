// Builds of files: one builds for all, whoever dies, stops or fails, and nothing that a
// build started goes on after it.

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/integration/files/file_cache_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"

namespace kiln::test {
namespace {

const std::vector<std::string> kEnvironment{"PATH=/usr/bin:/bin", "WORD=said"};

class BuildOnceTest : public FileCacheTest {
 protected:
  /// A build by the shell; its output is the error of a script that fails.
  static std::function<Result<void>(FileBuild&)> by_shell(const std::string& script) {
    return [script](FileBuild& folder) -> Result<void> {
      auto ran = folder.run({"sh", "-c", script}, kEnvironment);
      if (!ran)
        return tl::unexpected(std::move(ran).error());
      if (ran->status != 0 || ran->signal != 0)
        return fail(ErrorCode::kCompileFailed, ran->output);
      return {};
    };
  }
  /// A process whose build takes long; its program is in the log.
  [[nodiscard]] ChildProcess slow_builder(std::chrono::milliseconds limit) {
    return ChildProcess([this, limit] {
      Opened own(config());
      std::ignore = own.files.build_once(
          request(), limit, by_shell("echo $$ >> " + log() + "; sleep 300"));
      return 0;
    });
  }
  [[nodiscard]] std::size_t lines() const {
    std::ifstream file(log());
    return static_cast<std::size_t>(
        std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
  }
  /// The process that a script has written to the log, once it has.
  [[nodiscard]] pid_t logged_process() const {
    EXPECT_TRUE(eventually(20s, [&] { return lines() > 0; }));
    pid_t pid = 0;
    std::ifstream(log()) >> pid;
    return pid;
  }
};

TEST_F(BuildOnceTest, GivesWhatTheBuildLeavesInItsFolder) {
  const auto build = by_shell(
      "echo $WORD $HOME > a; mkdir d; printf x > d/b; chmod +x d/b; cat; echo built "
      ">> " +
      log());
  const auto first = value_of(here_.files.build_once(request(), 20s, build));
  EXPECT_EQ(first.outcome, Event::Kind::kCompiled);
  EXPECT_EQ(texts_of(first), (Texts{{"a", "said\n"}, {"d/b", "x"}}));
  Opened other(config());
  const auto second = value_of(other.files.build_once(request(), 20s, build));
  EXPECT_EQ(second.outcome, Event::Kind::kHit);
  EXPECT_EQ(texts_of(second), texts_of(first));
  EXPECT_EQ(lines(), 1U);
}

TEST_F(BuildOnceTest, SaysWhyNothingWasBuilt) {
  const auto failed = here_.files.build_once(
      request(), 20s, by_shell("echo out; echo err >&2; exit 3"));
  EXPECT_THAT(failed, IsError(ErrorCode::kCompileFailed, "out\nerr\n"));
  const auto no_program = [](FileBuild& folder) -> Result<void> {
    return folder.run({"no-such-compiler"}, kEnvironment).map([](const auto&) {});
  };
  EXPECT_THAT(here_.files.build_once(request("2"), 20s, no_program),
              IsError(ErrorCode::kUnavailable,
                      AllOf(HasSubstr("no-such-compiler"), HasSubstr("No such file"))));
  EXPECT_THAT(here_.files.build_once(request("3"), 20s, by_shell("true")),
              IsError(ErrorCode::kInvalidArgument, HasSubstr("has no file")));
  EXPECT_THAT(
      here_.files.build_once(request("4"), 20s, by_shell("ln -s /etc/passwd a")),
      IsError(ErrorCode::kInvalidArgument, HasSubstr("neither a file")));
  Config no_jit = config();
  no_jit.no_jit = true;
  Opened node(no_jit);
  EXPECT_THAT(node.files.build_once(request(), 20s, by_shell("echo > a")),
              IsError(ErrorCode::kUnavailable,
                      AllOf(HasSubstr("test_kernel (key "), HasSubstr("for sm_90"))));
}

TEST_F(BuildOnceTest, ABuildOverItsLimitIsKilledWithAllThatItStarted) {
  const auto begun = std::chrono::steady_clock::now();
  const auto late =
      here_.files.build_once(request(), 500ms,
                             by_shell("sleep 300 & setsid sleep 300 & echo $! >> " +
                                      log() + "; echo said; sleep 300"));
  EXPECT_THAT(late, IsError(ErrorCode::kTimeout,
                            AllOf(HasSubstr("sh took longer than its limit"),
                                  HasSubstr("said"))));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
  const pid_t left = logged_process();
  EXPECT_TRUE(eventually(5s, [&] { return !is_running(left); }));
}

TEST_F(BuildOnceTest, NothingThatAnEndedBuildStartedGoesOn) {
  value_of(here_.files.build_once(
      request(), 20s,
      by_shell("setsid sleep 300 & echo $! >> " + log() + "; echo > a")));
  const pid_t left = logged_process();
  EXPECT_TRUE(eventually(5s, [&] { return !is_running(left); }));
}

TEST_F(BuildOnceTest, AProgramEndsWithTheWorkerThatWatchesIt) {
  EXPECT_THAT(here_.files.build_once(
                  request(), 20s,
                  by_shell("echo $$ >> " + log() + "; kill -9 $PPID; sleep 300")),
              IsError(ErrorCode::kWorkerCrashed, HasSubstr("signal 9")));
  const pid_t left = logged_process();
  EXPECT_TRUE(eventually(5s, [&] { return !is_running(left); }));
}

TEST_F(BuildOnceTest, OfSixteenProcessesOneBuilds) {
  std::vector<ChildProcess> all;
  for (int i = 0; i < 16; ++i)
    all.emplace_back([this] {
      Opened own(config());
      const auto found = own.files.build_once(
          request(), 20s,
          by_shell("echo built >> " + log() + "; sleep 0.5; echo 1 > a"));
      return found && texts_of(*found) == Texts{{"a", "1\n"}} ? 0 : 1;
    });
  for (auto& each : all) EXPECT_EQ(each.wait(), 0);
  EXPECT_EQ(lines(), 1U);
}

TEST_F(BuildOnceTest, OfThreadsOneBuildsAndItsFailureIsTheirs) {
  constexpr int kThreads = 8;
  std::atomic<int> asking = 0;
  std::atomic<int> failed = 0;
  const auto build = [&](FileBuild& folder) {
    EXPECT_TRUE(eventually(20s, [&] { return asking == kThreads; }));
    return by_shell("echo built >> " + log() + "; sleep 0.5; echo no; exit 1")(folder);
  };
  in_threads(kThreads, [&] {
    ++asking;
    const auto found = here_.files.build_once(request(), 60s, build);
    failed += !found && found.error().message == "no\n" ? 1 : 0;
  });
  EXPECT_EQ(failed, kThreads);
  EXPECT_EQ(lines(), 1U);
}

TEST_F(BuildOnceTest, WhatABuilderStartedEndsWithItAndAWaiterBuilds) {
  ChildProcess builder = slow_builder(60s);
  const pid_t program = logged_process();
  std::jthread killer([&] {
    std::this_thread::sleep_for(300ms);
    builder.signal(SIGKILL);
  });
  const auto found =
      value_of(here_.files.build_once(request(), 20s, by_shell("echo 2 > a")));
  EXPECT_EQ(texts_of(found), (Texts{{"a", "2\n"}}));
  EXPECT_TRUE(eventually(5s, [&] { return !is_running(program); }));
  killer.join();
  EXPECT_EQ(builder.wait(), -SIGKILL);
}

TEST_F(BuildOnceTest, AStoppedBuilderIsWaitedForNoLongerThanItsLimitAndFiveSeconds) {
  ChildProcess builder = slow_builder(1s);
  EXPECT_GT(logged_process(), 0);
  builder.signal(SIGSTOP);
  const auto begun = std::chrono::steady_clock::now();
  const auto found =
      value_of(here_.files.build_once(request(), 1s, by_shell("echo 2 > a")));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 8s);
  EXPECT_EQ(texts_of(found), (Texts{{"a", "2\n"}}));
}

TEST_F(BuildOnceTest, AResultThatIsTooLargeIsGivenAndNotStored) {
  const auto found = value_of(here_.files.build_once(
      request(), 60s, by_shell("truncate -s 513M large; echo built >> " + log())));
  ASSERT_TRUE(found.not_stored);
  EXPECT_EQ(found.not_stored->code, ErrorCode::kResourceLimit);
  EXPECT_EQ(fs::file_size(found.folder / "large"), 513U << 20U);
  EXPECT_FALSE(value_of(here_.files.get(request().fields)));
}

TEST_F(BuildOnceTest, WithoutACacheEachBuilds) {
  Opened off(service_config("/proc/kiln"));
  for (int i = 0; i < 2; ++i) {
    const auto found =
        value_of(off.files.build_once(request(), 20s, by_shell("echo 1 > a")));
    EXPECT_EQ(texts_of(found), (Texts{{"a", "1\n"}}));
    EXPECT_TRUE(found.not_stored);
  }
}

}  // namespace
}  // namespace kiln::test
