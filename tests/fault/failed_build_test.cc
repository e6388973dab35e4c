// Row 40: sixteen processes want one kernel whose build fails, hangs, or cannot be
// stored. Nobody waits for the builds of all the others, one after another.

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "build/cached_builds.h"
#include "build/shared_failure.h"
#include "tests/support/child_process.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/paths.h"
#include "tests/support/print_name.h"
#include "tests/support/processes.h"
#include "tests/support/service_requests.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using test::ChildProcess;
using test::PrintTo;

constexpr int kProcesses = 16;
constexpr auto kBuildTime = 700ms;

struct End {
  const char* name;
  std::optional<Error> error;  // nullopt: a kernel, which cannot be stored
  bool full_disk = false;
  bool is_shared = false;  // one build answers all
  bool no_file = false;    // it cannot leave its error
};

class FailedBuildTest : public testing::Test, public testing::WithParamInterface<End> {
 protected:
  /// A build that ends as the parameter says, after kBuildTime.
  Result<NewArtifact> build(const compile::ProgressCallback& on_phase) {
    on_phase(compile::BuildPhase::kQueued);
    ++*builds_;
    std::this_thread::sleep_for(kBuildTime);
    if (GetParam().error)
      return tl::unexpected(*GetParam().error);
    test::ReferenceObject object(0);
    NewArtifact made;
    made.object = std::make_shared<const cache::StoredObject>(
        cache::StoredObject::make(*object).value());
    if (!GetParam().full_disk)
      made.mismatch =
          Error{ErrorCode::kInvalidArgument, "it read what the key does not cover"};
    return made;
  }

  /// One process: 0 if its request ended as a build of its own would have.
  int run() {
    test::FaultyFileSystem files;
    cache::CacheOptions options;
    options.root = dir_.path() / "root";
    options.file_system = &files;
    const auto cache = cache::Cache::open(options);
    if (GetParam().no_file)
      std::ofstream(cache->lock_folder().path / "failed");
    files.before = [](std::string_view call, int) {
      const bool is_full = GetParam().full_disk && call == "write";
      return is_full ? -ENOSPC : 0;
    };
    CachedBuilds builds(*cache, {300s, 1U << 30U, {}});
    const Digest key = test::ReferenceObject(0).key();
    const auto fetched =
        builds.build({.key = key,
                      .target = "sm_90a",
                      .label = "k",
                      .build = [&](auto&, auto& on_phase) { return build(on_phase); }},
                     {});
    if (const auto& error = GetParam().error)
      return !fetched && fetched.error().code == error->code &&
                     (fetched.error().message == error->message || GetParam().no_file)
                 ? 0
                 : 1;
    return fetched && fetched->not_stored ? 0 : 2;
  }

  const test::TempDir dir_;
  const test::SharedWithChildren<std::atomic<int>> builds_;
};

TEST_P(FailedBuildTest, fault_40_NobodyWaitsForMoreThanOneForeignBuild) {
  test::Campaign campaign;
  const auto began = Clock::now();
  std::vector<ChildProcess> processes;
  for (int i = 0; i < kProcesses; ++i) processes.emplace_back([&] { return run(); });
  campaign.injected();
  for (ChildProcess& process : processes) campaign.expect_end(process);
  // One after another they would need 16 times as long.
  EXPECT_LT(Clock::now() - began, kProcesses * kBuildTime / 2);
  if (GetParam().is_shared) {
    // Whoever had not begun to wait when the first build ended is answered by a second.
    EXPECT_LE(*builds_, 2);
  } else {
    EXPECT_EQ(*builds_, kProcesses);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ends, FailedBuildTest,
    testing::Values(
        End{.name = "Hang",
            .error = Error{ErrorCode::kTimeout, "over its limit"},
            .is_shared = true},
        End{.name = "HangOnAFullDisk",
            .error = Error{ErrorCode::kTimeout, "over its limit"},
            .is_shared = true,
            .no_file = true},
        End{.name = "NvrtcError",
            .error = Error{ErrorCode::kCompileFailed, std::string(100'000, 'e')},
            .is_shared = true},
        End{.name = "PtxasError",
            .error = Error{ErrorCode::kCompileFailed, "ptxas: too much shared data"},
            .is_shared = true},
        End{.name = "NotAsKeyed", .error = std::nullopt},
        End{.name = "FullDisk", .error = std::nullopt, .full_disk = true},
        End{.name = "NoWorker", .error = Error{ErrorCode::kUnavailable, "no worker"}}),
    [](const auto& test) { return std::string(test.param.name); });

/// A failure of a real worker.
struct RealEnd {
  const char* name;
  const char* mode;  // of the fake NVRTC
  ErrorCode code;
  const char* source;
};

class FailedWorkTest : public testing::TestWithParam<RealEnd> {};

TEST_P(FailedWorkTest, fault_40_EndsForAllProcessesAtTheLimitOfOneBuild) {
  test::Campaign campaign;
  constexpr auto kLimit = 1s;
  const test::TempDir dir;
  Config config = test::service_config(dir.path() / "cache");
  config.nvrtc = test::paths::kFakeNvrtc;
  config.compile_timeout = kLimit;
  // All headers of a toolkit take each process seconds to read, in a build with checks.
  for (const char* const name : {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"})
    ::unsetenv(name);  // NOLINT(concurrency-mt-unsafe)
  // The fake's version is asked for while it still answers.
  ::setenv("KILN_FAKE_NVRTC", "", 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_TRUE(test::keyed(*test::open_service(config), test::small_kernel(0)));
  ::setenv("KILN_FAKE_NVRTC", GetParam().mode, 1);  // NOLINT(concurrency-mt-unsafe)
  const auto began = Clock::now();
  std::vector<ChildProcess> processes;
  for (int i = 0; i < kProcesses; ++i) {
    processes.emplace_back([&, i] {
      const auto temporary = dir.path() / ("tmp" + std::to_string(i));
      std::filesystem::create_directory(temporary);
      ::setenv("TMPDIR", temporary.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
      const auto service = test::open_service(config);
      const auto failed =
          test::fetch(*service, Request::from_source({.source = GetParam().source}));
      return !failed && failed.error().code == GetParam().code ? 0 : 1;
    });
  }
  campaign.injected();
  for (ChildProcess& process : processes) campaign.expect_end(process);
  EXPECT_LT(Clock::now() - began, kLimit + 5s);
}

INSTANTIATE_TEST_SUITE_P(
    Ends, FailedWorkTest,
    testing::Values(RealEnd{"Hang", "hang", ErrorCode::kTimeout,
                            "__global__ void k() {}"},
                    RealEnd{"HangThatMayReadAnything", "hang", ErrorCode::kTimeout,
                            "#define NAME <a.h>\n#include NAME\n__DATE__"},
                    RealEnd{"NoImage", "empty", ErrorCode::kCompileFailed,
                            "__global__ void k() {}"}),
    [](const auto& test) { return std::string(test.param.name); });

/// Processes that want one kernel at once, and of which some have their workers killed
/// from outside in each build.
class KilledBuildTest : public testing::Test {
 protected:
  KilledBuildTest() {
    config_.nvrtc = test::paths::kFakeNvrtc;
    // The fake's version is asked for while it still answers.
    ::setenv("KILN_FAKE_NVRTC", "", 1);  // NOLINT(concurrency-mt-unsafe)
    EXPECT_TRUE(test::keyed(*test::open_service(config_), test::small_kernel(0)));
    // NOLINTNEXTLINE(concurrency-mt-unsafe)
    ::setenv("KILN_FAKE_NVRTC", "marked-signal-9", 1);
  }

  enum class Killed : bool { kNo, kYes };

  /// One that begins when `go` is raised; exits with 0 if that ended as it must.
  ChildProcess want(const test::Signal& go, Killed killed, bool is_kernel) {
    const auto temporary = dir_.path() / ("tmp" + std::to_string(++processes_));
    std::filesystem::create_directory(temporary);
    if (killed == Killed::kYes)
      std::ofstream(temporary / "kill") << "all";
    return ChildProcess([&, temporary, is_kernel] {
      ::setenv("TMPDIR", temporary.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
      const auto service = test::open_service(config_);
      const auto keyed = test::keyed(*service, test::small_kernel(1));
      ready_.raise();
      go.wait();
      const auto fetched = service->fetch(keyed.value());
      *built_ += static_cast<int>(test::counted(*service, cache::Counter::kCompiled));
      *lost_ +=
          static_cast<int>(test::counted(*service, cache::Counter::kWorkerCrashed));
      if (is_kernel)
        return fetched.has_value() ? 0 : 1;
      return !fetched && fetched.error().code == ErrorCode::kWorkerCrashed ? 0 : 2;
    });
  }

  /// The first process builds, and then the others wait for it.
  void run(Killed others) {
    test::Campaign campaign;
    const test::Signal first_goes;
    const test::Signal others_go;
    ChildProcess first = want(first_goes, Killed::kYes, false);
    std::vector<ChildProcess> waiting;
    for (int i = 1; i < kProcesses; ++i)
      waiting.push_back(want(others_go, others, others == Killed::kNo));
    for (int i = 0; i < kProcesses; ++i) ready_.wait();
    campaign.injected();
    first_goes.raise();
    // It has the lock of the key before it starts a worker.
    EXPECT_TRUE(
        test::eventually(30s, [&] { return !test::children_of(first.pid()).empty(); }));
    for (std::size_t i = 0; i < waiting.size(); ++i) others_go.raise();
    campaign.expect_end(first);
    for (ChildProcess& process : waiting) campaign.expect_end(process);
  }

  const test::TempDir dir_;
  Config config_ = test::service_config(dir_.path() / "cache");
  int processes_ = 0;
  const test::Signal ready_;
  const test::SharedWithChildren<std::atomic<int>> built_;
  const test::SharedWithChildren<std::atomic<int>> lost_;
};

TEST_F(KilledBuildTest, fault_48_OfOneProcessIsTriedByOneOfThoseWhoWait) {
  run(Killed::kNo);
  EXPECT_EQ(*built_, 1);
  EXPECT_EQ(*lost_, 1);
}

TEST_F(KilledBuildTest, fault_48_OfASecondProcessAnswersAllWhoWait) {
  run(Killed::kYes);
  EXPECT_EQ(*built_, 0);
  EXPECT_EQ(*lost_, 2) << "builds, of two workers each";
}

TEST(FailedBuild, fault_40_OneWhoseHeaderChangedMeanwhileAnswersNobodyElse) {
  test::Campaign campaign;
  const test::TempDir dir;
  Config config = test::service_config(dir.path() / "cache");
  config.nvrtc = test::paths::kFakeNvrtc;
  config.compile_timeout = 1s;
  ::setenv("KILN_FAKE_NVRTC", "", 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_TRUE(test::keyed(*test::open_service(config), test::small_kernel(0)));
  ::setenv("KILN_FAKE_NVRTC", "hang", 1);  // NOLINT(concurrency-mt-unsafe)
  const auto service = test::open_service(config);
  // Two checkouts of one source: one key.
  const auto checkout = [&](const std::string& name) {
    std::filesystem::create_directory(dir.path() / name);
    std::ofstream(dir.path() / name / "a.h") << "int a;";
    return test::keyed(*service,
                       Request::from_source({.source = "#include \"a.h\"\n",
                                             .include_dirs = {dir.path() / name}}))
        .value();
  };
  const KeyedRequest first = checkout("first");
  const KeyedRequest second = checkout("second");
  ASSERT_EQ(first.key, second.key);
  test::Signal begun;
  ChildProcess process([&] {
    begun.wait();
    const auto other = test::open_service(config);
    const auto failed = other->fetch(second);
    return !failed && test::counted(*other, cache::Counter::kWorkerKilled) == 1 ? 0 : 1;
  });
  std::jthread builds([&] { EXPECT_FALSE(service->fetch(first)); });
  // Besides the other process, a worker, which starts when the key is locked.
  ASSERT_TRUE(
      test::eventually(30s, [] { return test::children_of(::getpid()).size() == 2; }));
  begun.raise();
  std::jthread waits([&] { EXPECT_FALSE(service->fetch(second)); });
  std::ofstream(dir.path() / "first" / "a.h") << "broken";
  campaign.injected();
  builds.join();
  waits.join();
  campaign.expect_end(process);
  EXPECT_EQ(test::counted(*service, cache::Counter::kWorkerKilled), 2U);
}

TEST(FailedBuild, fault_40_ARefusalWithoutABuildAnswersNoOtherProcess) {
  test::Campaign campaign;
  const test::TempDir dir;
  cache::CacheOptions options;
  options.root = dir.path() / "root";
  const Digest key = test::ReferenceObject(0).key();
  const Error refusal{ErrorCode::kTimeout, "ten minutes old"};
  std::promise<void> begun;
  const auto refuse = [&](auto&, auto&) -> Result<NewArtifact> {
    begun.set_value();
    std::this_thread::sleep_for(300ms);
    return tl::unexpected(refusal);
  };
  const auto cache = cache::Cache::open(options);
  CachedBuilds builds(*cache, {300s, 1U << 30U, {}});
  std::jthread refused([&] {
    EXPECT_FALSE(builds.build(
        {.key = key, .target = "sm_90a", .label = "k", .build = refuse}, {}));
  });
  begun.get_future().wait();
  // As another process, with a cache of its own.
  const auto others = cache::Cache::open(options);
  CachedBuilds other(*others, {300s, 1U << 30U, {}});
  int built = 0;
  const auto build = [&](auto&, auto& on_phase) -> Result<NewArtifact> {
    on_phase(compile::BuildPhase::kQueued);
    ++built;
    return fail(ErrorCode::kCompileFailed, "the log");
  };
  const auto failed =
      other.build({.key = key, .target = "sm_90a", .label = "k", .build = build}, {});
  campaign.injected();
  EXPECT_EQ(failed.error().message, "the log");
  EXPECT_EQ(built, 1);
}

class SharedFailuresTest : public testing::Test {
 protected:
  static cache::OwnerRecord builder(pid_t pid) {
    cache::OwnerRecord record;
    record.pid = pid;
    record.started = 5s;
    return record;
  }

  const test::TempDir dir_;
  const Digest key_ = test::ReferenceObject(0).key();
  const BuildConditions conditions_{300s, 1U << 30U, "A=1"};
  const SharedFailures failures_{dir_.path() / "failed", conditions_};
};

TEST_F(SharedFailuresTest, AreOfTheBuilderThatWasWaitedForAndOfNoOther) {
  failures_.leave(key_, builder(1), {ErrorCode::kCompileFailed, "a log"});
  ASSERT_TRUE(failures_.find(key_, builder(1)));
  EXPECT_EQ(failures_.find(key_, builder(1))->code, ErrorCode::kCompileFailed);
  EXPECT_EQ(failures_.find(key_, builder(1))->message, "a log");
  EXPECT_FALSE(failures_.find(key_, builder(2)));
  EXPECT_FALSE(failures_.find(test::ReferenceObject(1).key(), builder(1)));
}

TEST_F(SharedFailuresTest, ABuildOverItsLimitsAnswersOnlyThoseWithTheSameLimits) {
  const SharedFailures longer(dir_.path() / "failed", {301s, 1U << 30U, "A=1"});
  for (const ErrorCode code :
       {ErrorCode::kTimeout, ErrorCode::kResourceLimit, ErrorCode::kWorkerCrashed}) {
    failures_.leave(key_, builder(1), {code, "over"});
    EXPECT_TRUE(failures_.find(key_, builder(1)));
    EXPECT_FALSE(longer.find(key_, builder(1)));
  }
  failures_.leave(key_, builder(1), {ErrorCode::kCompileFailed, "a log"});
  EXPECT_TRUE(longer.find(key_, builder(1))) << "limits change no diagnostics";
}

TEST_F(SharedFailuresTest, AFailureInAnotherEnvironmentIsNoAnswer) {
  const SharedFailures other(dir_.path() / "failed", {300s, 1U << 30U, "A=2"});
  failures_.leave(key_, builder(1), {ErrorCode::kCompileFailed, "a log"});
  EXPECT_TRUE(failures_.find(key_, builder(1)));
  EXPECT_FALSE(other.find(key_, builder(1)));
}

TEST_F(SharedFailuresTest, ATimeOutNeedsNoFileWhereTheLimitIsTheSame) {
  cache::OwnerRecord timed_out = builder(1);
  timed_out.timed_out = true;
  timed_out.build_limit = 300s;
  ASSERT_TRUE(failures_.find(key_, timed_out));
  EXPECT_EQ(failures_.find(key_, timed_out)->code, ErrorCode::kTimeout);
  timed_out.build_limit = 299s;
  EXPECT_FALSE(failures_.find(key_, timed_out));
}

TEST_F(SharedFailuresTest, AreSoonRemoved) {
  for (int i = 0; i < 20; ++i)
    failures_.leave(test::ReferenceObject(i).key(), builder(1),
                    {ErrorCode::kCompileFailed, "a log"});
  EXPECT_EQ(dir_.files().size(), 16U);
  for (const auto& file : std::filesystem::directory_iterator(dir_.path() / "failed"))
    std::filesystem::last_write_time(
        file, std::filesystem::file_time_type::clock::now() - 2min);
  failures_.leave(key_, builder(1), {ErrorCode::kCompileFailed, "a log"});
  EXPECT_EQ(dir_.files().size(), 1U);
}

TEST_F(SharedFailuresTest, WhatConcernsOneProcessAloneIsNotShared) {
  for (const ErrorCode code :
       {ErrorCode::kCancelled, ErrorCode::kUnavailable, ErrorCode::kIo}) {
    failures_.leave(key_, builder(1), {code, "mine"});
    EXPECT_FALSE(failures_.find(key_, builder(1)));
  }
}

TEST_F(SharedFailuresTest, ADamagedFileIsNoAnswer) {
  failures_.leave(key_, builder(1), {ErrorCode::kCompileFailed, "a log"});
  const auto file = dir_.path() / "failed" / key_.hex();
  ASSERT_TRUE(failures_.find(key_, builder(1)));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_FALSE(failures_.find(key_, builder(1)));
}

}  // namespace
}  // namespace kiln
