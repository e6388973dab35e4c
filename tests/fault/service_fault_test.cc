// The data path on bad days: compilers that lie, killed workers, full and read-only
// disks, roots of others. The caller gets a kernel or a clear error, in bounded time.

#include <sys/mount.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include "tests/support/fault/campaign.h"
#include "tests/support/is_error.h"
#include "tests/support/namespaces.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests/support/service_requests.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

class ServiceFaultTest : public testing::Test {
 protected:
  ServiceFaultTest() { campaign_.injected(); }
  void SetUp() override { fake(""); }

  /// Of the workers that the next service starts.
  static void fake(const char* mode) {
    ::setenv("KILN_FAKE_NVRTC", mode, 1);  // NOLINT(concurrency-mt-unsafe)
  }
  [[nodiscard]] Config config() const {
    Config made = test::service_config(temp_.path() / "cache");
    made.nvrtc = test::paths::kFakeNvrtc;
    return made;
  }
  /// The fake's version is asked for while it still answers.
  void learn_toolchain() const {
    fake("");
    EXPECT_TRUE(test::keyed(*test::open_service(config()), test::small_kernel(0)));
  }

  const test::TempDir temp_;
  test::Campaign campaign_;  // one fault a test
};

struct Lie {
  const char* mode;
  ErrorCode code;
  const char* words;
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name for it
void PrintTo(const Lie& lie, std::ostream* out) {
  *out << lie.mode;  // part of the test's name: the same at every start
}

class LyingCompilerTest : public ServiceFaultTest,
                          public testing::WithParamInterface<Lie> {};

TEST_P(LyingCompilerTest, fault_07_IsAClearErrorInBoundedTimeAndNothingIsStored) {
  learn_toolchain();
  fake(GetParam().mode);
  Config limited = config();
  // The others end by themselves, on a busy machine later than after a second.
  limited.compile_timeout = GetParam().code == ErrorCode::kTimeout ? 1s : 30s;
  limited.worker_memory_bytes = 512U << 20U;
  {
    const auto service = test::open_service(limited);
    const auto began = std::chrono::steady_clock::now();
    const auto failed = test::fetch(*service, test::small_kernel(1));
    EXPECT_LT(std::chrono::steady_clock::now() - began, 30s);
    EXPECT_THAT(failed, test::IsError(GetParam().code, HasSubstr(GetParam().words)));
    EXPECT_THAT(service->cache().list({}).value(), IsEmpty());
  }
  fake("");
  const auto service = test::open_service(limited);
  const auto served = test::fetch(*service, test::small_kernel(1));
  ASSERT_TRUE(served) << served.error().message;
  EXPECT_EQ(served->outcome, FetchOutcome::kCompiled);
  EXPECT_FALSE(served->not_stored);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, LyingCompilerTest,
    testing::Values(Lie{"hang", ErrorCode::kTimeout, "while compiling"},
                    Lie{"crash", ErrorCode::kWorkerCrashed, "signal 11"},
                    Lie{"exit", ErrorCode::kWorkerCrashed, "7"},
                    Lie{"hoard", ErrorCode::kResourceLimit, "memory"},
                    Lie{"empty", ErrorCode::kCompileFailed, "no image"},
                    Lie{"wrong-arch", ErrorCode::kCompileFailed, "sm_75"},
                    Lie{"no-entry", ErrorCode::kCompileFailed, "no kernel"}),
    [](const auto& test) {
      std::string name = test.param.mode;
      std::erase(name, '-');
      return name;
    });

TEST_F(ServiceFaultTest, fault_07_ACompilerThatOpensItselfHasReadNoHeader) {
  learn_toolchain();
  fake("open-itself");
  const auto service = test::open_service(config());
  const auto fetched = test::fetch(*service, test::small_kernel(1));
  ASSERT_TRUE(fetched) << fetched.error().message;
  EXPECT_FALSE(fetched->not_stored) << fetched->not_stored->message;
}

TEST_F(ServiceFaultTest, fault_06_AStopEndsABuildAndItsFollowersGoOn) {
  learn_toolchain();
  fake("hang");
  Config limited = config();
  limited.compile_timeout = 3s;
  const auto service = test::open_service(limited);
  std::stop_source stop;
  std::optional<Result<Fetched>> leader;
  std::optional<Result<Fetched>> follower;
  std::thread first(
      [&] { leader = test::fetch(*service, test::small_kernel(1), stop.get_token()); });
  ASSERT_TRUE(
      test::eventually(30s, [] { return !test::children_of(::getpid()).empty(); }));
  std::thread second([&] { follower = test::fetch(*service, test::small_kernel(1)); });
  std::this_thread::sleep_for(100ms);
  stop.request_stop();
  first.join();
  ASSERT_FALSE(*leader);
  // It did not wait for its limit.
  EXPECT_EQ(leader->error().code, ErrorCode::kCancelled) << leader->error().message;
  second.join();
  ASSERT_FALSE(*follower);
  EXPECT_EQ(follower->error().code, ErrorCode::kTimeout) << follower->error().message;
}

TEST_F(ServiceFaultTest, fault_06_AStopEndsTheQuestionToACompilerThatDoesNotAnswer) {
  fake("hang-version");
  const auto service = test::open_service(config());
  const auto prepared = service->prepare(test::small_kernel(1)).value();
  std::stop_source stop;
  std::jthread stopper([&] {
    EXPECT_TRUE(
        test::eventually(30s, [] { return !test::children_of(::getpid()).empty(); }));
    stop.request_stop();
  });
  const auto began = std::chrono::steady_clock::now();
  const auto keyed = service->key(prepared, device::Target{{{8, 0}}}, stop.get_token());
  EXPECT_LT(std::chrono::steady_clock::now() - began, 30s) << "its limit is a minute";
  EXPECT_THAT(keyed, test::IsError(ErrorCode::kCancelled));
}

TEST_F(ServiceFaultTest, fault_02_WorkersKilledInMidCompileCostOneBuild) {
  learn_toolchain();
  fake("hang");
  Config limited = config();
  limited.compile_timeout = 40s;
  const auto service = test::open_service(limited);
  std::optional<Result<Fetched>> fetched;
  std::atomic<bool> is_over = false;
  std::thread build([&] {
    fetched = test::fetch(*service, test::small_kernel(1));
    is_over = true;
  });
  // Those that have the compiler open, and so are at work.
  std::set<pid_t> killed;
  EXPECT_TRUE(test::eventually(30s, [&] {
    for (const pid_t worker : test::children_of(::getpid())) {
      std::ifstream maps("/proc/" + std::to_string(worker) + "/maps");
      const std::string text((std::istreambuf_iterator<char>(maps)), {});
      if (text.find("fake-nvrtc") == std::string::npos || killed.contains(worker))
        continue;
      std::this_thread::sleep_for(200ms);
      ::kill(worker, SIGKILL);
      killed.insert(worker);
    }
    return is_over.load();
  }));
  build.join();
  EXPECT_THAT(killed, SizeIs(2)) << "it is tried once more";
  ASSERT_FALSE(*fetched);
  EXPECT_EQ(fetched->error().code, ErrorCode::kWorkerCrashed);
  fake("");  // for the workers of the next service
  const auto again = test::fetch(*test::open_service(config()), test::small_kernel(1));
  EXPECT_TRUE(again) << again.error().message;
}

TEST_F(ServiceFaultTest, fault_08_OnAFullDiskTheCallerStillGetsItsKernel) {
  test::in_mount_namespace([&] {
    if (!test::mount_small_disk(temp_.path() / "cache", "size=512k"))
      return test::kImpossible;
    const auto service = test::open_service(config());
    const auto before = test::fetch(*service, test::small_kernel(1));
    EXPECT_TRUE(before && !before->not_stored);
    const fs::path junk = temp_.path() / "cache/junk";
    std::ofstream(junk) << std::string(1U << 20U, 'x');
    const auto full = test::fetch(*service, test::small_kernel(2));
    EXPECT_TRUE(full) << full.error().message;
    if (full) {
      EXPECT_EQ(full->outcome, FetchOutcome::kCompiled);
      EXPECT_FALSE(full->object->payload().empty());
      EXPECT_TRUE(full->not_stored);
      EXPECT_THAT(full->not_stored->message, HasSubstr("No space left"));
      EXPECT_EQ(service->cache().counters().snapshot()["publish_refused.ENOSPC"], 1U);
    }
    EXPECT_EQ(test::fetch(*service, test::small_kernel(1))->outcome,
              FetchOutcome::kHit);
    fs::remove(junk);
    const auto after = test::fetch(*service, test::small_kernel(3));
    EXPECT_TRUE(after && !after->not_stored);
    EXPECT_EQ(service->cache().verify({})->corrupt, 0U);
    return 0;
  });
}

TEST_F(ServiceFaultTest,
       fault_08_OnADiskThatIsFullFromTheStartTheCallerStillGetsItsKernel) {
  test::in_mount_namespace([&] {
    if (!test::mount_small_disk(temp_.path() / "cache", "size=16k"))
      return test::kImpossible;
    std::ofstream(temp_.path() / "cache/junk") << std::string(1U << 20U, 'x');
    const auto service = test::open_service(config());
    const auto fetched = test::fetch(*service, test::small_kernel(1));
    EXPECT_TRUE(fetched) << fetched.error().message;
    EXPECT_TRUE(fetched && fetched->not_stored);
    return 0;
  });
}

TEST_F(ServiceFaultTest, fault_32_AReadOnlyRootServesHitsAndBuildsMissesInMemory) {
  test::KilnProgram kiln;
  kiln.use_fake_nvrtc();
  const std::string hit = kiln.write("hit.cu", test::kTinySource);
  const std::string miss = kiln.write("miss.cu", "__global__ void other() {}\n");
  const std::string manifest = kiln.write("m.jsonl",
                                          "{\"source\":\"__global__ void a() {}\"}\n"
                                          "{\"source\":\"__global__ void b() {}\"}\n");
  EXPECT_EQ(kiln.run({"compile", hit, "--arch", "9.0"}).status, 0);
  test::in_mount_namespace([&] {
    const std::string root = kiln.cache_dir();
    if (::mount(root.c_str(), root.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, root.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY,
                nullptr) != 0)
      return test::kImpossible;
    const auto served = kiln.run({"compile", hit, "--arch", "9.0", "--json"});
    EXPECT_EQ(served.status, 0) << served.text();
    EXPECT_EQ(served.json()["hits"], 1);
    EXPECT_EQ(served.err, "") << "nothing is wrong";
    const auto warm =
        kiln.run({"warm", "--manifest", manifest, "--arch", "9.0", "--json"});
    EXPECT_EQ(warm.status, 3) << warm.text();
    EXPECT_THAT(warm.err, HasSubstr("the cache is read-only"));
    const auto built = kiln.run({"compile", miss, "--arch", "8.0,9.0", "--json"});
    EXPECT_EQ(built.status, 1) << built.text();
    EXPECT_EQ(built.json()["compiled"], 2);
    EXPECT_EQ(built.json()["not_stored"], 2);
    // One warning, not one a kernel.
    const auto first = built.err.find("warning");
    EXPECT_NE(first, std::string::npos) << built.text();
    EXPECT_EQ(built.err.find("warning", first + 1), std::string::npos) << built.text();
    EXPECT_EQ(kiln.run({"ls"}).status, 0);
    EXPECT_EQ(kiln.json_of({"ls"})["entries"].size(), 1U);
    EXPECT_EQ(kiln.run({"verify"}).status, 0);
    const auto clear = kiln.run({"clear", "--all", "--yes"});
    EXPECT_NE(clear.status, 0);
    EXPECT_THAT(clear.err, HasSubstr("read-only"));
    return 0;
  });
}

TEST_F(ServiceFaultTest, fault_33_OfARootThatOthersCanWriteAFolderOfItsUserIsUsed) {
  test::KilnProgram kiln;
  kiln.use_fake_nvrtc();
  const std::string source = kiln.write("k.cu", test::kTinySource);
  fs::create_directories(kiln.cache_dir());
  ASSERT_EQ(::chmod(kiln.cache_dir().c_str(), 0777), 0);
  const fs::path own = kiln.cache_dir() / ("kiln-" + std::to_string(::geteuid()));
  const auto built = kiln.run({"compile", source, "--arch", "9.0", "--json"});
  EXPECT_EQ(built.json()["not_stored"], 0) << built.text();
  EXPECT_THAT(built.err, AllOf(HasSubstr("can be changed by another user; "),
                               HasSubstr(own.string() + ", of this user alone")));
  EXPECT_EQ(kiln.json_of({"compile", source, "--arch", "9.0"})["hits"], 1);
  EXPECT_EQ(kiln.json_of({"ls"})["entries"].size(), 1U);
  EXPECT_EQ(kiln.json_of({"verify"})["checked"], 1);
  EXPECT_FALSE(fs::exists(kiln.cache_dir() / "objects"));
  ASSERT_EQ(::chmod(own.c_str(), 0777), 0);
  const auto refused = kiln.run({"compile", source, "--arch", "9.0", "--json"});
  EXPECT_EQ(refused.json()["not_stored"], 1) << refused.text();
}

TEST_F(ServiceFaultTest, fault_33_AnObjectThatOthersCanWriteIsNotUsed) {
  test::KilnProgram kiln;
  kiln.use_fake_nvrtc();
  const std::string source = kiln.write("k.cu", test::kTinySource);
  EXPECT_EQ(kiln.json_of({"compile", source, "--arch", "9.0"})["compiled"], 1);
  ASSERT_EQ(::chmod(kiln.object_files().at(0).c_str(), 0666), 0);
  const auto verified = kiln.run({"verify", "--json"});
  EXPECT_EQ(verified.status, 8) << verified.text();
  EXPECT_EQ(verified.json()["untrusted"], 1);
  const auto again = kiln.run({"compile", source, "--arch", "9.0", "--json"});
  EXPECT_EQ(again.json()["hits"], 0) << again.text();
  EXPECT_EQ(again.json()["failed"], 0);
}

TEST_F(ServiceFaultTest, fault_33_ARootOfSomebodyElseIsNotUsed) {
  if (::getuid() != 0)
    GTEST_SKIP() << "NOT TESTED: only root can give a folder away";
  test::KilnProgram kiln;
  kiln.use_fake_nvrtc();
  fs::create_directories(kiln.cache_dir());
  ASSERT_EQ(::chown(kiln.cache_dir().c_str(), 12345, 12345), 0);
  const std::string source = kiln.write("k.cu", test::kTinySource);
  const auto built = kiln.run({"compile", source, "--arch", "9.0", "--json"});
  EXPECT_EQ(built.json()["not_stored"], 1) << built.text();
  EXPECT_THAT(built.err, HasSubstr("12345"));
  kiln.set("KILN_TRUSTED_UIDS", "12345");
  EXPECT_EQ(kiln.json_of({"compile", source, "--arch", "9.0"})["not_stored"], 0);
}

}  // namespace
}  // namespace kiln
