// Processes that share a cache root: races, killed and stopped lock holders.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "cache/cache.h"
#include "tests/support/child_process.h"
#include "tests/support/sample_object.h"
#include "tests/support/temp_dir.h"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;
using test::ChildProcess;
using test::SampleObject;

/// Counters that all processes of a test see.
struct Shared {
  std::atomic<int> builds;
  std::atomic<int> inside;
  std::atomic<int> most_inside;
};

class CacheProcessesTest : public testing::Test {
 protected:
  CacheOptions options() {
    CacheOptions options;
    options.root = dir_.path() / "root";
    options.lock_times = times_;
    options.slots = 2;
    return options;
  }

  /// What a service does: find, else lock, build, publish. 0: right bytes in hand.
  int get(Cache& cache, int number) {
    SampleObject sample(number);
    if (auto found = cache.find(sample.key()))
      return as_text(found->payload()) == sample.payload() ? 0 : 2;
    std::optional<StoredObject> appeared;
    KeyLock::LockRequest request{.key = sample.key()};
    request.look_again = [&] {
      appeared = cache.look_again(sample.key());
      return appeared.has_value();
    };
    auto locked = cache.lock(request);
    if (locked.outcome == LockOutcome::kAppeared)
      return as_text(appeared->payload()) == sample.payload() ? 0 : 3;
    if (locked.outcome != LockOutcome::kHeld)
      return 4;
    locked.lock.set_phase(Phase::kCompiling);
    std::this_thread::sleep_for(2ms);
    ++shared_->builds;
    const PublishResult published = cache.publish(*sample);
    return published.outcome == Published::kStored ? 0 : 5;
  }

  KeyLock::Acquired lock(Cache& cache) {
    return cache.lock({.key = SampleObject(1).key()});
  }

  /// A child that holds the lock of object 1, and says so.
  ChildProcess holder(test::Signal& holds, Phase phase) {
    return ChildProcess([&, phase] {
      const auto cache = Cache::open(options());
      auto held = lock(*cache);
      held.lock.set_phase(phase);
      holds.raise();
      std::this_thread::sleep_for(60s);
      return 1;
    });
  }

  LockTimes times_;
  const test::TempDir dir_;
  const test::SharedWithChildren<Shared> shared_;
};

TEST_F(CacheProcessesTest, SixtyFourProcessesBuildEachKeyOnce) {
  constexpr int kKeys = 16;
  test::Signal go;
  std::vector<ChildProcess> children;
  for (int i = 0; i < 64; ++i) {
    children.emplace_back([&, i] {
      const auto cache = Cache::open(options());
      go.wait();
      for (int key = 0; key < kKeys; ++key) {
        if (const int wrong = get(*cache, (key + i) % kKeys); wrong != 0)
          return wrong;
      }
      return 0;
    });
  }
  for (int i = 0; i < 64; ++i) go.raise();
  for (ChildProcess& child : children) EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(shared_->builds, kKeys);
  const auto cache = Cache::open(options());
  EXPECT_EQ(cache->list({}).value().size(), static_cast<std::size_t>(kKeys));
  EXPECT_TRUE(cache->verify({}).value().problems.empty());
}

TEST_F(CacheProcessesTest, PublishersWithoutALockAgreeOnOneObject) {
  test::Signal go;
  std::vector<ChildProcess> children;
  for (int i = 0; i < 32; ++i) {
    children.emplace_back([&, i] {
      const auto cache = Cache::open(options());
      SampleObject sample(1, i % 2 == 0 ? "one build" : "another build");
      go.wait();
      const Published outcome = cache->publish(*sample).outcome;
      shared_->builds += outcome == Published::kStored ? 1 : 0;
      return outcome == Published::kNotStored ? 1 : 0;
    });
  }
  for (int i = 0; i < 32; ++i) go.raise();
  for (ChildProcess& child : children) EXPECT_EQ(child.wait(), 0);
  const auto cache = Cache::open(options());
  EXPECT_TRUE(cache->find(SampleObject(1).key()));
  EXPECT_EQ(shared_->builds, 1);
}

TEST_F(CacheProcessesTest, AKilledHolderFreesItsLockAtOnce) {
  test::Signal holds;
  ChildProcess child = holder(holds, Phase::kCompiling);
  holds.wait();
  const auto cache = Cache::open(options());
  std::thread killer([&] {
    std::this_thread::sleep_for(100ms);
    child.signal(SIGKILL);
  });
  const auto acquired = lock(*cache);
  killer.join();
  EXPECT_EQ(acquired.outcome, LockOutcome::kHeld);
  EXPECT_LT(acquired.waited, 5s) << "before its heartbeats are missed";
}

TEST_F(CacheProcessesTest, AStoppedHolderIsGivenUpAndNamed) {
  times_ = {.heartbeat = 50ms, .no_heartbeat = 500ms};
  test::Signal holds;
  ChildProcess child = holder(holds, Phase::kCompiling);
  holds.wait();
  child.signal(SIGSTOP);
  const auto cache = Cache::open(options());
  const auto acquired = lock(*cache);
  EXPECT_EQ(acquired.outcome, LockOutcome::kBypassed);
  EXPECT_NE(acquired.reason.find(std::to_string(child.pid())), std::string::npos);
  EXPECT_NE(acquired.reason.find("compiling"), std::string::npos) << acquired.reason;
  // And what was built meanwhile can be published.
  SampleObject sample(1);
  EXPECT_EQ(cache->publish(*sample).outcome, Published::kStored);
}

TEST_F(CacheProcessesTest, SlotsBoundTheBuildsOfAllProcesses) {
  std::vector<ChildProcess> children;
  for (int i = 0; i < 8; ++i) {
    children.emplace_back([&] {
      const auto cache = Cache::open(options());
      for (int round = 0; round < 5; ++round) {
        const auto slot = cache->acquire_slot({});
        if (slot.outcome != SlotOutcome::kHeld)
          return 1;
        const int now = ++shared_->inside;
        int seen = shared_->most_inside;
        while (seen < now && !shared_->most_inside.compare_exchange_weak(seen, now)) {
        }
        std::this_thread::sleep_for(5ms);
        --shared_->inside;
      }
      return 0;
    });
  }
  for (ChildProcess& child : children) EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(shared_->most_inside, 2);
}

TEST_F(CacheProcessesTest, AKillInMidPublishLeavesTheObjectAbsentOrWhole) {
  for (int round = 0; round < 40; ++round) {
    ChildProcess child([&, round] {
      const auto cache = Cache::open(options());
      for (int i = 0;; ++i) {
        SampleObject sample(round * 100'000 + i, std::string(100'000, 'p'));
        std::ignore = cache->publish(*sample);
      }
      return 0;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + round % 7));
    child.signal(SIGKILL);
    EXPECT_EQ(child.wait(), -SIGKILL);
  }
  const auto cache = Cache::open(options());
  EXPECT_TRUE(cache->verify({}).value().problems.empty());
  EXPECT_TRUE(cache->list({}));
}

TEST_F(CacheProcessesTest, AnIndexDeletedUnderManyProcessesHurtsNobody) {
  std::vector<ChildProcess> children;
  for (int i = 0; i < 12; ++i) {
    children.emplace_back([&, i] {
      const auto cache = Cache::open(options());
      for (int round = 0; round < 10; ++round) {
        SampleObject sample(i * 100 + round);
        if (cache->publish(*sample).outcome != Published::kStored)
          return 1;
        if (round % 7 == i % 7)
          std::filesystem::remove(cache->layout().index());
        if (!cache->find(sample.key()) || !cache->list({.limit = 5}))
          return 2;
      }
      return 0;
    });
  }
  for (ChildProcess& child : children) EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(Cache::open(options())->list({}).value().size(), 120U);
}

}  // namespace
}  // namespace kiln::cache
