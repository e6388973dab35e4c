// Compilers that hang, die and lie; workers that are none; hosts with odd habits. Each
// time: a clear error in bounded time, and the next request is served.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <future>
#include <thread>

#include "compile/protocol.h"
#include "compile/worker_pool.h"
#include "device/cubin.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/processes.h"
#include "tests/support/temp_dir.h"

namespace kiln::compile {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using Clock = std::chrono::steady_clock;

constexpr auto kBounded = 30s;  // generous: machines are slow, a hang is for ever

PoolOptions options_with(const std::string& mode, unsigned max_workers = 1) {
  PoolOptions options;
  options.max_workers = max_workers;
  options.environment = {"KILN_FAKE_NVRTC=" + mode};
  return options;
}

CompileJob small_job() {
  return test::job_for(test::fake_nvrtc(), test::kSmallKernel);
}

/// Served by the same pool: what a pool that was harmed must still be able to do. The
/// fake keeps its mode, so this asks it a thing that every mode answers.
void expect_still_serving(WorkerPool& pool) {
  const auto description = pool.describe(test::fake_nvrtc());
  ASSERT_TRUE(description) << description.error().message;
  EXPECT_EQ(description->major, 13);
}

Error error_of(const Result<CompileOutput>& output) {
  EXPECT_FALSE(output);
  return output ? Error{} : output.error();
}

TEST(FakeNvrtc, LeftAloneItIsHonest) {
  WorkerPool pool(options_with(""));
  auto wanted = small_job();
  wanted.source += "template <typename T>\n__global__ void k(T* x) {}\n";
  wanted.name_expressions = {"k<float>"};
  const auto output = pool.compile(wanted, {});
  ASSERT_TRUE(output) << output.error().message;
  const std::vector<std::string_view> entries{"scale", "_Z1kv"};
  const auto checked = device::check_image(output->image, wanted.target, entries);
  EXPECT_TRUE(checked) << checked.error().message;
  EXPECT_THAT(output->nvrtc.build_id, Not(IsEmpty()));
  EXPECT_THAT(output->builtins.build_id, IsEmpty());

  wanted.target.kind = device::ImageKind::kPtx;
  wanted.options = {"--gpu-architecture=compute_80"};
  const auto ptx = pool.compile(wanted, {});
  EXPECT_TRUE(ptx) << ptx.error().message;
}

/// Builds that meet one fault.
class CompileFault : public testing::Test {
 protected:
  CompileFault() { campaign_.injected(); }

  test::Campaign campaign_;
};

TEST_F(CompileFault, fault_06_AHangEndsAtTheTimeLimit) {
  const test::TempDir root;
  auto options = options_with("hang");
  options.reproductions = root.path() / "repro";
  WorkerPool pool(options);
  auto wanted = small_job();
  wanted.time_limit = 500ms;
  const auto begin = Clock::now();
  const auto error = error_of(pool.compile(wanted, {}));
  EXPECT_LT(Clock::now() - begin, kBounded);
  EXPECT_EQ(error.code, ErrorCode::kTimeout);
  EXPECT_THAT(error.message, AllOf(HasSubstr("while compiling"), HasSubstr("0.5 s"),
                                   HasSubstr("saved in " + root.path().native())));
  expect_still_serving(pool);
}

TEST_F(CompileFault, fault_07_ACrashIsContainedAndNamed) {
  WorkerPool pool(options_with("crash"));
  const auto error = error_of(pool.compile(small_job(), {}));
  EXPECT_EQ(error.code, ErrorCode::kWorkerCrashed);
  EXPECT_THAT(error.message, HasSubstr("signal 11"));
  expect_still_serving(pool);
}

TEST_F(CompileFault, fault_07_ACompilerThatExitsIsACrashWithItsStatus) {
  WorkerPool pool(options_with("exit"));
  const auto error = error_of(pool.compile(small_job(), {}));
  EXPECT_EQ(error.code, ErrorCode::kWorkerCrashed);
  EXPECT_THAT(error.message, HasSubstr("exited with status 7"));
  expect_still_serving(pool);
}

TEST_F(CompileFault, fault_07_SuccessWithoutAnImageIsAFailure) {
  WorkerPool pool(options_with("empty"));
  const auto error = error_of(pool.compile(small_job(), {}));
  EXPECT_EQ(error.code, ErrorCode::kCompileFailed);
  EXPECT_THAT(error.message, HasSubstr("no image"));
  expect_still_serving(pool);
}

TEST_F(CompileFault, fault_07_AnImageOfAnotherArchitectureIsAFailure) {
  WorkerPool pool(options_with("wrong-arch"));
  const auto error = error_of(pool.compile(small_job(), {}));
  EXPECT_EQ(error.code, ErrorCode::kCompileFailed);
  EXPECT_THAT(error.message, AllOf(HasSubstr("sm_75"), HasSubstr("sm_80")));
  expect_still_serving(pool);
}

TEST_F(CompileFault, fault_07_ALoweredNameThatIsNotInTheImageIsAFailure) {
  WorkerPool pool(options_with("no-entry"));
  auto wanted = small_job();
  wanted.name_expressions = {"k<float>"};
  const auto error = error_of(pool.compile(wanted, {}));
  EXPECT_EQ(error.code, ErrorCode::kCompileFailed);
  EXPECT_THAT(error.message, HasSubstr("k<float>"));
  expect_still_serving(pool);
}

TEST_F(CompileFault, fault_06_AMemoryHogIsKilledAtItsLimit) {
  WorkerPool pool(options_with("hoard"));
  auto wanted = small_job();
  wanted.memory_limit_bytes = 256U << 20U;
  const auto begin = Clock::now();
  const auto error = error_of(pool.compile(wanted, {}));
  EXPECT_LT(Clock::now() - begin, kBounded);
  EXPECT_EQ(error.code, ErrorCode::kResourceLimit);
  EXPECT_THAT(error.message, HasSubstr("256 MiB"));
  expect_still_serving(pool);
}

TEST_F(CompileFault, fault_06_ARepeatKillerIsRefusedForTenMinutesOthersAreNot) {
  auto now = std::make_shared<std::atomic<Clock::rep>>(0);
  auto options = options_with("crash");
  options.clock = [now] { return Clock::time_point(Clock::duration(now->load())); };
  int refused = 0;
  options.on_refused = [&refused] { ++refused; };
  WorkerPool pool(options);
  std::vector<Error> errors;
  for (int i = 0; i < 3; ++i) errors.push_back(error_of(pool.compile(small_job(), {})));
  EXPECT_EQ(errors[2].message, errors[1].message);
  EXPECT_EQ(errors[2].code, errors[1].code);

  int starts = 0;
  const auto count_starts = [&starts](BuildPhase phase) {
    starts += phase == BuildPhase::kStarting ? 1 : 0;
  };
  std::ignore = error_of(pool.compile(small_job(), {}, count_starts));
  EXPECT_EQ(starts, 0) << "a refused job must cost no worker";
  EXPECT_EQ(refused, 2) << "the third and the fourth";
  auto other = small_job();
  other.source += "\n";
  std::ignore = error_of(pool.compile(other, {}, count_starts));
  EXPECT_EQ(starts, 1);
  *now += Clock::duration(10min).count();
  std::ignore = error_of(pool.compile(small_job(), {}, count_starts));
  EXPECT_EQ(starts, 2);
}

TEST(CompileWorker, AJobThatIsTooLargeIsAnErrorAndNotARefusalOfItsSource) {
  auto options = options_with("");
  options.max_job_bytes = 10'000;
  int refused = 0;
  options.on_refused = [&refused] { ++refused; };
  WorkerPool pool(options);
  auto large = small_job();
  large.source += std::string(10'000, ' ');
  bool begun = false;
  for (int i = 0; i < 3; ++i) {
    const auto error =
        error_of(pool.compile(large, {}, [&begun](BuildPhase) { begun = true; }));
    EXPECT_EQ(error.code, ErrorCode::kResourceLimit);
    EXPECT_THAT(error.message, HasSubstr("over the limit of 10000"));
  }
  EXPECT_EQ(refused, 0);
  EXPECT_FALSE(begun) << "it would count as one that lost its worker";
  EXPECT_THAT(test::children_of(::getpid()), IsEmpty());
  EXPECT_TRUE(pool.compile(small_job(), {}));
}

TEST(CompileWorker, AReproductionThatCannotBeSavedIsSaidAndDoesNotHideTheError) {
  const test::TempDir root;
  std::ofstream(root.path() / "repro") << "a file in the way";
  auto options = options_with("crash");
  options.reproductions = root.path() / "repro";
  WorkerPool pool(options);
  const auto error = error_of(pool.compile(small_job(), {}));
  EXPECT_EQ(error.code, ErrorCode::kWorkerCrashed);
  EXPECT_THAT(error.message, AllOf(HasSubstr("signal 11"), HasSubstr("not be saved")));
}

TEST_F(CompileFault, fault_02_AWorkerKilledWhileIdleIsReplaced) {
  WorkerPool pool(options_with(""));
  ASSERT_TRUE(pool.compile(small_job(), {}));
  const auto workers = test::children_of(::getpid());
  ASSERT_THAT(workers, SizeIs(1));
  ::kill(workers.front(), SIGKILL);
  ASSERT_TRUE(test::eventually(5s, [&] { return !test::is_running(workers.front()); }));
  const auto output = pool.compile(small_job(), {});
  EXPECT_TRUE(output) << output.error().message;
}

TEST_F(CompileFault, fault_05_AStoppedWorkerIsATimeout) {
  WorkerPool pool(options_with(""));
  ASSERT_TRUE(pool.compile(small_job(), {}));
  const auto workers = test::children_of(::getpid());
  ASSERT_THAT(workers, SizeIs(1));
  ::kill(workers.front(), SIGSTOP);
  auto wanted = small_job();
  wanted.time_limit = 300ms;
  EXPECT_EQ(error_of(pool.compile(wanted, {})).code, ErrorCode::kTimeout);
  EXPECT_TRUE(pool.compile(small_job(), {}));
}

TEST(CompileWorker, DestroyingThePoolEndsBuildsAndWorkers) {
  auto pool = std::make_unique<WorkerPool>(options_with("hang", 2));
  std::vector<std::future<Result<CompileOutput>>> builds;
  WorkerPool& used = *pool;
  for (int i = 0; i < 4; ++i)  // two of them queue
    builds.push_back(std::async(std::launch::async,
                                [&used] { return used.compile(small_job(), {}); }));
  ASSERT_TRUE(test::eventually(
      kBounded, [] { return test::children_of(::getpid()).size() == 2; }));
  std::this_thread::sleep_for(100ms);
  const auto begin = Clock::now();
  pool.reset();
  EXPECT_LT(Clock::now() - begin, kBounded);
  for (auto& build : builds)
    EXPECT_EQ(error_of(build.get()).code, ErrorCode::kCancelled);
  EXPECT_THAT(test::children_of(::getpid()), IsEmpty());
}

TEST(CompileWorker, AStopEndsAQueuedBuild) {
  WorkerPool pool(options_with("hang"));
  std::stop_source stop;
  auto running = std::async(
      std::launch::async, [&] { return pool.compile(small_job(), stop.get_token()); });
  ASSERT_TRUE(test::eventually(kBounded,
                               [] { return !test::children_of(::getpid()).empty(); }));
  std::stop_source stop_queued;
  auto queued = std::async(std::launch::async, [&] {
    return pool.compile(small_job(), stop_queued.get_token());
  });
  std::this_thread::sleep_for(100ms);
  stop_queued.request_stop();
  EXPECT_THAT(error_of(queued.get()).message, HasSubstr("queued"));
  stop.request_stop();
  EXPECT_EQ(error_of(running.get()).code, ErrorCode::kCancelled);
}

TEST(CompileWorker, AStopThatCameFirstBuildsNothing) {
  WorkerPool pool(options_with(""));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(error_of(pool.compile(small_job(), stop.get_token())).code,
            ErrorCode::kCancelled);
  EXPECT_THAT(test::children_of(::getpid()), IsEmpty());
}

TEST(CompileWorker, WithoutASlotNoWorkerStarts) {
  auto options = options_with("");
  options.acquire_slot = [](const std::stop_token&) -> Result<std::shared_ptr<void>> {
    return fail(ErrorCode::kIo, "no slot today");
  };
  WorkerPool pool(options);
  EXPECT_EQ(error_of(pool.compile(small_job(), {})).message, "no slot today");
  EXPECT_THAT(test::children_of(::getpid()), IsEmpty());
}

TEST(CompileWorker, TheSlotIsHeldUntilTheKilledWorkerIsGone) {
  auto options = options_with("hang");
  std::atomic<std::size_t> alive_at_release = 99;
  options.acquire_slot = [&](const std::stop_token&) -> Result<std::shared_ptr<void>> {
    return std::shared_ptr<void>(&alive_at_release, [](std::atomic<std::size_t>* seen) {
      *seen = test::children_of(::getpid()).size();
    });
  };
  WorkerPool pool(options);
  auto wanted = small_job();
  wanted.time_limit = 200ms;
  EXPECT_EQ(error_of(pool.compile(wanted, {})).code, ErrorCode::kTimeout);
  EXPECT_EQ(alive_at_release, 0U);
}

std::filesystem::path make_script(const std::filesystem::path& path,
                                  const std::string& text) {
  std::ofstream(path) << "#!/bin/sh\n" << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST(CompileWorker, AProgramThatIsNoWorkerIsRefused) {
  const test::TempDir folder;
  const std::vector<std::string> scripts{"exit 0\n", "echo broken >&2; exit 3\n",
                                         "printf 'what is a frame, after all?' >&3\n"};
  for (const auto& script : scripts) {
    auto options = options_with("");
    options.worker.option = make_script(folder.path() / "impostor", script);
    WorkerPool pool(options);
    const auto error = error_of(pool.compile(small_job(), {}));
    EXPECT_EQ(error.code, ErrorCode::kUnavailable) << script;
    EXPECT_THAT(error.message, HasSubstr("impostor"));
  }
}

TEST(CompileWorker, AWorkerOfAnotherBuildIsRefusedNamingBothPaths) {
  const test::TempDir folder;
  const auto hello = folder.path() / "hello";
  {
    const Bytes frame = encode_reply(Hello{"0123456789abcdef"});
    std::ofstream(hello, std::ios::binary) << as_text(frame);
  }
  auto options = options_with("");
  options.worker.option = make_script(folder.path() / "old-worker",
                                      "cat " + hello.native() + " >&3; sleep 60\n");
  WorkerPool pool(options);
  const auto error = error_of(pool.compile(small_job(), {}));
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("old-worker"), HasSubstr(this_library().native())));
}

TEST_F(CompileFault, fault_07_WhatADyingWorkerWroteIsQuoted) {
  const test::TempDir folder;
  auto options = options_with("");
  options.worker.option =
      make_script(folder.path() / "impostor", "echo 'no such symbol' >&2; exit 127\n");
  WorkerPool pool(options);
  EXPECT_THAT(error_of(pool.compile(small_job(), {})).message,
              AllOf(HasSubstr("no such symbol"), HasSubstr("127")));
}

TEST(CompileWorker, TheWorkerInheritsNoDescriptor) {
  // Without O_CLOEXEC, as careless hosts open theirs.
  const int leaked = ::dup(STDERR_FILENO);
  ASSERT_GE(leaked, 0);
  WorkerPool pool(options_with(""));
  ASSERT_TRUE(pool.compile(small_job(), {}));
  ::close(leaked);
  const auto workers = test::children_of(::getpid());
  ASSERT_THAT(workers, SizeIs(1));
  std::vector<std::string> open;
  for (const auto& entry : std::filesystem::directory_iterator(
           "/proc/" + std::to_string(workers.front()) + "/fd"))
    open.push_back(entry.path().filename().native());
  EXPECT_THAT(open, testing::UnorderedElementsAre("0", "1", "2", "3"));
}

TEST(CompileWorker, TheWorkerCanGainNothingAndReachNobody) {
  WorkerPool pool(options_with("break-out"));
  const auto compiled = pool.compile(small_job(), {});
  const auto workers = test::children_of(::getpid());
  ASSERT_THAT(workers, SizeIs(1)) << (compiled ? "" : compiled.error().message);
  std::ifstream file("/proc/" + std::to_string(workers.front()) + "/status");
  const std::string status(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1"));
  if (status.find("Seccomp:\t2") == std::string::npos)
    GTEST_SKIP()
        << "NO SYSTEM CALL FILTERS HERE: what the worker can do was not tested";
  EXPECT_TRUE(compiled) << compiled.error().message;
}

TEST(CompileWorker, TheWorkerGetsNoSecretOfTheEnvironment) {
  ::setenv("KILN_TEST_TOKEN", "secret", 1);
  WorkerPool pool(options_with(""));
  ASSERT_TRUE(pool.compile(small_job(), {}));
  ::unsetenv("KILN_TEST_TOKEN");
  const auto workers = test::children_of(::getpid());
  ASSERT_THAT(workers, SizeIs(1));
  std::ifstream file("/proc/" + std::to_string(workers.front()) + "/environ");
  const std::string environment(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(environment, Not(HasSubstr("secret")));
  EXPECT_THAT(environment, HasSubstr("KILN_FAKE_NVRTC="));
}

/// Runs `body` in a forked child and gives its exit status; 0 is success.
int status_of_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0)
    ::_exit(body() ? 0 : 1);
  int status = -1;
  return ::waitpid(child, &status, 0) == child ? status : -1;
}

TEST(CompileWorker, AHostWithoutStandardDescriptorsCanBuild) {
  EXPECT_EQ(status_of_child([] {
              for (const int fd : {0, 1, 2}) ::close(fd);
              WorkerPool pool(options_with(""));
              return pool.compile(small_job(), {}).has_value();
            }),
            0);
}

TEST(CompileWorker, AHostThatIgnoresItsChildrenCanBuild) {
  EXPECT_EQ(status_of_child([] {
              ::signal(SIGCHLD, SIG_IGN);
              ::signal(SIGPIPE, SIG_IGN);
              WorkerPool pool(options_with(""));
              if (!pool.compile(small_job(), {}))
                return false;
              const auto workers = test::children_of(::getpid());
              ::kill(workers.at(0), SIGKILL);
              return test::eventually(5s,
                                      [&] { return !test::is_running(workers[0]); }) &&
                     pool.compile(small_job(), {}).has_value();
            }),
            0);
}

TEST(CompileWorker, AHostThatReapsEveryChildCanBuild) {
  EXPECT_EQ(status_of_child([] {
              ::signal(SIGCHLD, [](int) {
                const int saved = errno;
                while (::waitpid(-1, nullptr, WNOHANG) > 0) {
                }
                errno = saved;
              });
              WorkerPool pool(options_with("crash"));
              const auto crashed = pool.compile(small_job(), {});
              return !crashed && crashed.error().code == ErrorCode::kWorkerCrashed &&
                     pool.describe(test::fake_nvrtc()).has_value();
            }),
            0);
}

TEST_F(CompileFault, fault_04_AHungWorkerDiesWithItsKilledHost) {
  const pid_t host = ::fork();
  if (host == 0) {
    WorkerPool pool(options_with("hang"));
    std::ignore = pool.compile(small_job(), {});
    ::_exit(0);
  }
  ASSERT_TRUE(
      test::eventually(kBounded, [&] { return !test::children_of(host).empty(); }));
  const pid_t worker = test::children_of(host).front();
  std::this_thread::sleep_for(300ms);
  EXPECT_TRUE(test::is_running(worker));
  ::kill(host, SIGKILL);
  EXPECT_TRUE(test::eventually(1s, [&] { return !test::is_running(worker); }));
  ::waitpid(host, nullptr, 0);
}

TEST_F(CompileFault, fault_31_AForkDuringABuildDoesNotDeadlockTheChild) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer cannot follow threads into a forked child";
#endif
  WorkerPool pool(options_with("hang", 2));
  std::stop_source stop;
  std::vector<std::future<Result<CompileOutput>>> builds;
  for (int i = 0; i < 3; ++i) {
    builds.push_back(std::async(std::launch::async, [&] {
      return pool.compile(small_job(), stop.get_token());
    }));
  }
  ASSERT_TRUE(test::eventually(
      kBounded, [] { return test::children_of(::getpid()).size() == 2; }));
  const auto workers = test::children_of(::getpid());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    const bool serves = pool.describe(test::fake_nvrtc()).has_value();
    pool.~WorkerPool();  // of the child: the parent's workers must survive it
    ::_exit(serves ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const pid_t worker : workers) EXPECT_TRUE(test::is_running(worker));
  stop.request_stop();
  for (auto& build : builds)
    EXPECT_EQ(error_of(build.get()).code, ErrorCode::kCancelled);
}

TEST_F(CompileFault, fault_07_ManyCrashesAndHangsLeaveNoProcessAndNoDescriptor) {
  const auto count_descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = count_descriptors();
  {
    WorkerPool pool(options_with("crash", 4));
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&pool, i] {
        for (int j = 0; j < 5; ++j) {
          auto wanted = small_job();
          wanted.source += "// " + std::to_string(i * 100 + j) + "\n";
          EXPECT_EQ(error_of(pool.compile(wanted, {})).code, ErrorCode::kWorkerCrashed);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(count_descriptors(), before);
  EXPECT_THAT(test::children_of(::getpid()), IsEmpty());
}

}  // namespace
}  // namespace kiln::compile
