// Workers that are killed, stopped or none at all, and hosts with odd habits. Each
// time: a clear error in bounded time, and the next request is served.

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "compile/pool/worker_path.h"
#include "tests/fault/compile_faults.h"
#include "tests/support/processes.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::compile {
namespace {

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

std::filesystem::path make_script(const std::filesystem::path& path,
                                  const std::string& text) {
  std::ofstream(path) << "#!/bin/sh\n" << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

/// With a folder that has the mark for the fake's mode "once".
PoolOptions killed_once(int signal, const test::TempDir& folder) {
  std::ofstream(folder.path() / "kill") << "once";
  PoolOptions options = options_with("once-signal-" + std::to_string(signal));
  options.environment.push_back("TMPDIR=" + folder.path().native());
  return options;
}

TEST_F(CompileFault, fault_48_AWorkerThatASignalFromOutsideEndsIsTriedOnceMore) {
  for (const int signal : {SIGKILL, SIGTERM, SIGXCPU, SIGXFSZ, SIGHUP}) {
    const test::TempDir folder;
    WorkerPool pool(killed_once(signal, folder));
    int starts = 0;
    const auto output = pool.compile(small_job(), {}, [&starts](BuildPhase phase) {
      starts += phase == BuildPhase::kStarting ? 1 : 0;
    });
    EXPECT_TRUE(output) << output.error().message;
    EXPECT_EQ(starts, 2) << signal;
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "kill")) << "nobody died";
  }
}

TEST_F(CompileFault, fault_48_AWorkerThatIsKilledWhileItStartsIsTriedOnceMore) {
  for (const int deaths : {1, 2}) {
    const test::TempDir folder;
    for (int i = 0; i < deaths; ++i)
      std::ofstream(folder.path() / ("kill-" + std::to_string(i))) << "once";
    auto options = options_with("");
    options.worker.path = make_script(
        folder.path() / "killed",
        fmt::format("for mark in {}/kill-*; do\n  rm $mark && kill -9 $$\ndone\n"
                    "exec {} \"$@\"\n",
                    folder.path().native(), find_worker({}).value().native()));
    WorkerPool pool(options);
    const auto output = pool.compile(small_job(), {});
    EXPECT_EQ(output.has_value(), deaths == 1);
    if (!output) {
      EXPECT_EQ(output.error().code, ErrorCode::kWorkerCrashed);
      EXPECT_TRUE(output.error().from_outside);
      EXPECT_THAT(output.error().message, HasSubstr("signal 9"));
    }
    const std::filesystem::directory_iterator left(folder.path());
    EXPECT_EQ(std::distance(left, {}), 1) << "nobody died";
  }
}

/// It waits for the other build, which waits for the machine's only slot.
TEST_F(CompileFault, fault_48_ABuildThatIsTriedOnceMoreKeepsNoSlotMeanwhile) {
  const test::TempDir folder;
  PoolOptions options = killed_once(SIGKILL, folder);
  options.max_workers = 2U;
  std::binary_semaphore slot(1);
  std::atomic<int> waiting = 0;
  options.acquire_slot = [&](const std::stop_token&) -> Result<std::shared_ptr<void>> {
    ++waiting;
    if (!slot.try_acquire_for(20s))
      return fail(ErrorCode::kTimeout, "no slot");
    --waiting;
    return std::shared_ptr<void>(&slot, [](auto* held) { held->release(); });
  };
  WorkerPool pool(options);
  std::thread other;
  Result<CompileOutput> others = fail(ErrorCode::kTimeout, "it did not begin");
  const auto output = pool.compile(small_job(), {}, [&](BuildPhase phase) {
    if (phase != BuildPhase::kStarting || other.joinable())
      return;
    other = std::thread([&] { others = pool.compile(small_job(), {}); });
    EXPECT_TRUE(test::eventually(5s, [&] { return waiting == 1; }));
  });
  other.join();
  EXPECT_TRUE(output) << output.error().message;
  EXPECT_TRUE(others) << others.error().message;
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "kill")) << "nobody died";
}

/// How many of three builds are refused because the first two killed their workers.
int refused_of_three(int signal) {
  PoolOptions options = options_with("signal-" + std::to_string(signal));
  int refused = 0;
  options.on_refused = [&refused] { ++refused; };
  WorkerPool pool(options);
  for (int i = 0; i < 3; ++i) {
    const Error error = error_of(pool.compile(small_job(), {}));
    EXPECT_EQ(error.code, ErrorCode::kWorkerCrashed);
    EXPECT_THAT(error.message, HasSubstr("signal " + std::to_string(signal)));
  }
  return refused;
}

TEST_F(CompileFault, fault_48_ASignalFromOutsideIsNoCrashOfTheSource) {
  for (const int signal : {SIGKILL, SIGTERM, SIGXCPU})
    EXPECT_EQ(refused_of_three(signal), 0) << signal;
}

TEST_F(CompileFault, fault_48_ASignalOfItsOwnIsACrashOfTheSource) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS})
    EXPECT_EQ(refused_of_three(signal), 1) << signal;
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

TEST(CompileWorker, AProgramThatIsNoWorkerIsRefused) {
  const test::TempDir folder;
  const std::vector<std::string> scripts{"exit 0\n", "echo broken >&2; exit 3\n",
                                         "printf 'what is a frame, after all?' >&3\n"};
  for (const auto& script : scripts) {
    auto options = options_with("");
    options.worker.path = make_script(folder.path() / "impostor", script);
    WorkerPool pool(options);
    const auto error = error_of(pool.compile(small_job(), {}));
    EXPECT_EQ(error.code, ErrorCode::kUnavailable) << script;
    EXPECT_THAT(error.message, HasSubstr("impostor"));
  }
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
  EXPECT_TRUE(test::eventually(kBounded, [&] { return !test::is_running(worker); }));
  ::waitpid(host, nullptr, 0);
}

/// The stopped process cannot watch the limits of its workers.
void expect_no_worker_outlives_its_limit(const std::string& mode,
                                         const CompileJob& job) {
  std::array<int, 2> ends{-1, -1};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t host = ::fork();
  if (host == 0) {
    WorkerPool pool(options_with(mode));
    std::ignore = pool.compile(job, {}, [&](BuildPhase phase) {
      if (phase == BuildPhase::kCompiling)
        std::ignore = ::write(ends[1], "c", 1);
    });
    ::_exit(0);
  }
  ::close(ends[1]);
  char compiling = 0;
  EXPECT_EQ(::read(ends[0], &compiling, 1), 1);
  ::close(ends[0]);
  ::kill(host, SIGSTOP);
  const auto workers = test::children_of(host);
  ASSERT_THAT(workers, SizeIs(1));
  const pid_t worker = workers.front();
  EXPECT_TRUE(test::eventually(10s, [&] { return !test::is_running(worker); }));
  ::kill(host, SIGKILL);
  ::waitpid(host, nullptr, 0);
}

TEST_F(CompileFault, fault_05_AWorkerEndsAtItsTimeLimitAlsoIfItsHostIsStopped) {
  auto wanted = small_job();
  wanted.time_limit = 1s;
  expect_no_worker_outlives_its_limit("hang", wanted);
}

TEST_F(CompileFault, fault_05_AWorkerEndsAtItsMemoryLimitAlsoIfItsHostIsStopped) {
  auto wanted = small_job();
  wanted.memory_limit_bytes = 512U << 20U;
  expect_no_worker_outlives_its_limit("hoard", wanted);
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

}  // namespace
}  // namespace kiln::compile
