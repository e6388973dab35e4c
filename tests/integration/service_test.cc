// The data path with real NVRTC: one build a key, whoever asks; what could not be
// stored stays in memory; nothing is stored that its key does not name.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <random>

#include "tests/support/child_process.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/processes.h"
#include "tests/support/service_requests.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"

namespace kiln {
namespace {

using cache::Counter;

class ServiceTest : public testing::Test {
 protected:
  [[nodiscard]] Config config() const {
    return test::service_config(temp_.path() / "cache");
  }
  [[nodiscard]] std::vector<fs::path> objects() const {
    std::vector<fs::path> files = temp_.files();
    std::erase_if(files, [](const fs::path& file) {
      return file.string().find("/objects/") == std::string::npos;
    });
    return files;
  }

  const test::TempDir temp_;
};

TEST_F(ServiceTest, ThirtyTwoThreadsBuildEachKeyOnce) {
  constexpr int kThreads = 32;
  constexpr int kKeys = 3;
  const auto service = test::open_service(config());
  std::atomic<int> compiled{0};
  std::atomic<int> served{0};
  test::in_threads(kThreads, [&](int t) {
    for (int i = 0; i < kKeys; ++i) {
      const auto fetched = test::fetch(*service, test::small_kernel((t + i) % kKeys));
      ASSERT_TRUE(fetched) << fetched.error().message;
      EXPECT_FALSE(fetched->not_stored);
      compiled += fetched->outcome == FetchOutcome::kCompiled ? 1 : 0;
      served += fetched->object->payload().empty() ? 0 : 1;
    }
  });
  EXPECT_EQ(compiled, kKeys);
  EXPECT_EQ(served, kThreads * kKeys);
  EXPECT_EQ(test::counted(*service, Counter::kCompiled), kKeys);
  EXPECT_THAT(objects(), SizeIs(kKeys));
}

TEST_F(ServiceTest, SixtyFourProcessesBuildEachOf32KeysOnce) {
  constexpr int kProcesses = 64;
  constexpr int kKeys = 32;
  constexpr int kFailed = 200;
  const auto rank = [&](unsigned seed) {
    const auto service = test::open_service(config());
    std::vector<int> order(kKeys);
    for (int i = 0; i < kKeys; ++i) order[static_cast<std::size_t>(i)] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    int compiled = 0;
    for (const int i : order) {
      const auto fetched = test::fetch(*service, test::small_kernel(i));
      if (!fetched || fetched->not_stored) {
        fmt::print(stderr, "rank {}: {}\n", seed,
                   fetched ? fetched->not_stored->message : fetched.error().message);
        return kFailed;
      }
      compiled += fetched->outcome == FetchOutcome::kCompiled ? 1 : 0;
    }
    return compiled;
  };
  const auto began = std::chrono::steady_clock::now();
  std::vector<test::ChildProcess> ranks;
  ranks.reserve(kProcesses);
  for (unsigned i = 0; i < kProcesses; ++i) ranks.emplace_back([&] { return rank(i); });
  int compiled = 0;
  for (test::ChildProcess& each : ranks) {
    const int code = each.wait();
    ASSERT_GE(code, 0);
    ASSERT_LT(code, kFailed);
    compiled += code;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  fmt::print("{} processes, {} keys: {} compiles in {:.1f} s\n", kProcesses, kKeys,
             compiled, took.count());
  EXPECT_EQ(compiled, kKeys);
  EXPECT_THAT(objects(), SizeIs(kKeys));

  const auto service = test::open_service(config());
  for (int i = 0; i < kKeys; ++i)
    EXPECT_EQ(test::fetch(*service, test::small_kernel(i))->outcome,
              FetchOutcome::kHit);
  const auto counters = service->cache().stats()->counters;
  EXPECT_EQ(counters.at("compiled"), kKeys);
}

TEST_F(ServiceTest, WhatCannotBeStoredIsBuiltOnceAndSaysSoEachTime) {
  Config memory_only = config();
  memory_only.cache_dir.clear();
  const auto service = test::open_service(memory_only);
  const auto first = test::value_of(test::fetch(*service, test::small_kernel(1)));
  EXPECT_EQ(first.outcome, FetchOutcome::kCompiled);
  EXPECT_TRUE(first.not_stored);
  const auto second = test::fetch(*service, test::small_kernel(1));
  EXPECT_EQ(second->outcome, FetchOutcome::kHit);
  EXPECT_EQ(second->object, first.object);
  EXPECT_TRUE(second->not_stored) << "it is in memory, not in the cache";
  EXPECT_EQ(test::counted(*service, Counter::kCompiled), 1U);
}

TEST_F(ServiceTest, WhatIsNotAsItsKeySaysAnswersNoOtherRequest) {
  const auto service = test::open_service(config());
  const fs::path header = temp_.path() / "include" / "hidden.h";
  fs::create_directories(header.parent_path());
  const auto value = [&](int number) {
    std::ofstream(header) << "#define VALUE " << number << "\n";
    SourceOptions source;
    source.source =
        "#define NAME(x) #x\n#include NAME(hidden.h)\n"
        "extern \"C\" __global__ void k(int* x) { *x = VALUE; }\n";
    source.include_dirs = {header.parent_path()};
    const auto fetched = test::fetch(*service, Request::from_source(source));
    EXPECT_TRUE(fetched) << fetched.error().message;
    EXPECT_EQ(fetched->outcome, FetchOutcome::kCompiled);
    EXPECT_FALSE(fetched->is_as_keyed);
    EXPECT_TRUE(fetched->not_stored);
    return fetched->object->ptx().value();
  };
  const std::string one = value(4711);
  EXPECT_THAT(one, testing::HasSubstr("4711"));
  EXPECT_THAT(value(1234), testing::HasSubstr("1234"));
  EXPECT_THAT(objects(), testing::IsEmpty());
}

TEST_F(ServiceTest, ADeviceNewerThanTheNvrtcGetsPtxForIt) {
  const auto service = test::open_service(config());
  const auto prepared = service->prepare(test::small_kernel(1));
  ASSERT_TRUE(prepared);
  const auto keyed =
      test::value_of(service->key(*prepared, device::ComputeCapability{99, 0}));
  const auto fetched = test::value_of(service->fetch(std::get<KeyedRequest>(keyed)));
  EXPECT_EQ(fetched.object->kind(), cache::Kind::kPtx);
  EXPECT_THAT(fetched.object->target(), testing::StartsWith("compute_"));
  EXPECT_THAT(std::string(as_text(fetched.object->payload())),
              HasSubstr(".target sm_"));
  EXPECT_EQ(service->fetch(std::get<KeyedRequest>(keyed))->outcome, FetchOutcome::kHit);
}

TEST_F(ServiceTest, AFailedBuildIsAValueAndIsTriedAgain) {
  const auto service = test::open_service(config());
  SourceOptions source;
  source.source = "oops";
  for (std::uint64_t i = 1; i <= 2; ++i) {
    EXPECT_THAT(test::fetch(*service, Request::from_source(source)),
                test::IsError(ErrorCode::kCompileFailed, HasSubstr("oops")));
    EXPECT_EQ(test::counted(*service, Counter::kCompileFailed), i);
  }
  EXPECT_THAT(objects(), IsEmpty());
}

TEST_F(ServiceTest, ADamagedObjectIsQuarantinedAndRebuiltTheSame) {
  const auto service = test::open_service(config());
  const auto first = test::fetch(*service, test::small_kernel(1));
  ASSERT_TRUE(first);
  const auto file = objects().at(0);
  fs::resize_file(file, fs::file_size(file) - 1);
  const auto second = test::fetch(*service, test::small_kernel(1));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->outcome, FetchOutcome::kCompiled);
  EXPECT_TRUE(std::ranges::equal(second->object->payload(), first->object->payload()));
  EXPECT_EQ(test::counted(*service, Counter::kQuarantined), 1U);
  EXPECT_EQ(test::fetch(*service, test::small_kernel(1))->outcome, FetchOutcome::kHit);
}

TEST_F(ServiceTest, ALibraryReplacedBetweenKeyAndCompileIsNotStoredUnderTheOldKey) {
  const fs::path copy = test::copy_of_real_nvrtc(temp_.path());
  if (copy.empty())
    GTEST_SKIP() << "this machine's NVRTC has no builtins beside it";
  Config with_copy = config();
  with_copy.nvrtc = copy;
  const auto service = test::open_service(with_copy);
  const auto keyed = test::value_of(test::keyed(*service, test::small_kernel(1)));

  test::change_build_id(copy);

  // A worker that is idle may have the old library open still: then all is as keyed.
  const auto fetched = test::value_of(test::open_service(with_copy)->fetch(keyed));
  EXPECT_TRUE(fetched.not_stored);
  EXPECT_THAT(objects(), IsEmpty());
}

}  // namespace
}  // namespace kiln
