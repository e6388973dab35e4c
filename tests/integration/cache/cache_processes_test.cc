// Processes that share a cache root and race. Those that are killed or stopped
// meanwhile are in tests/fault/cache.

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "cache/cache.h"
#include "tests/support/child_process.h"
#include "tests/support/sample_object.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

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
    options.slots = 2;
    return options;
  }

  const test::TempDir dir_;
  const test::SharedWithChildren<Shared> shared_;
};

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
