// Work in the background: bounded, stopped, dropped.

#include "library/prefetcher.h"

#include <atomic>
#include <filesystem>
#include <iterator>
#include <thread>

#include "tests/support/processes.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

TEST(Prefetcher, RunsEveryTaskAndNoMoreThanItsThreadsAtOnce) {
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  std::atomic<int> done = 0;
  Prefetcher prefetcher(3);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(prefetcher.start([&](const std::stop_token&) {
      const int now = ++running;
      int seen = most;
      while (seen < now && !most.compare_exchange_weak(seen, now)) continue;
      std::this_thread::sleep_for(1ms);
      --running;
      ++done;
    }));
  }
  EXPECT_TRUE(test::eventually(10s, [&] { return done == 50; }));
  EXPECT_LE(most, 3);
  EXPECT_GE(most, 2) << "tasks that wait get a thread of their own";
}

TEST(Prefetcher, EndsByStoppingWhatRunsAndDroppingWhatWaits) {
  std::atomic<int> begun = 0;
  std::atomic<bool> stopped = false;
  {
    Prefetcher prefetcher(1);
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(prefetcher.start([&](const std::stop_token& stop) {
        ++begun;
        stopped = test::eventually(10s, [&] { return stop.stop_requested(); });
      }));
    }
    ASSERT_TRUE(test::eventually(10s, [&] { return begun == 1; }));
  }
  EXPECT_EQ(begun, 1);
  EXPECT_TRUE(stopped);
}

TEST(Prefetcher, ThatWasNeverUsedHasNoThread) {
  const auto before =
      std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                    std::filesystem::directory_iterator());
  const Prefetcher prefetcher(8);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                          std::filesystem::directory_iterator()),
            before);
}

}  // namespace
}  // namespace kiln
