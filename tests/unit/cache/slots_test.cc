#include "cache/slots.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class SlotsTest : public testing::Test {
 protected:
  /// Locks a slot and writes nothing: as a stopped process looks to others.
  OwnedRange silent_holder(std::uint64_t slot) {
    files_.before = [](std::string_view call, int) {
      return call == "pwrite" ? -EIO : 0;
    };
    auto held = OwnedRange::try_own({&files_, folder_.path / "slots", slot}, {}, 1h);
    files_.before = [](auto, int) { return 0; };
    return **std::move(held);
  }

  const test::TempDir dir_;
  const LockFolder folder_{dir_.path() / "locks", {}};
  test::FaultyFileSystem files_;
  Counters counters_;
  const LockTimes times_{.heartbeat = 20ms, .no_heartbeat = 300ms};
};

TEST_F(SlotsTest, BoundHowManyRunAtOnce) {
  Slots slots(folder_, files_, counters_, times_, 3);
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&] {
      const auto acquired = slots.acquire({});
      EXPECT_EQ(acquired.outcome, SlotOutcome::kHeld);
      const int now = ++inside;
      int seen = most;
      while (seen < now && !most.compare_exchange_weak(seen, now)) {
      }
      std::this_thread::sleep_for(20ms);
      --inside;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 3);
}

TEST_F(SlotsTest, TheDeadlineEndsTheWait) {
  Slots slots(folder_, files_, counters_, times_, 1);
  const auto held = slots.acquire({});
  Slots::Request request;
  request.deadline = Clock::now() + 600ms;
  EXPECT_EQ(slots.acquire(request).outcome, SlotOutcome::kCancelled)
      << "a living holder is waited for";
}

TEST_F(SlotsTest, ASilentHolderIsWaitedForOnceAndThenIgnored) {
  const OwnedRange stopped = silent_holder(0);
  Slots slots(folder_, files_, counters_, times_, 1);
  const auto before = Clock::now();
  auto first = slots.acquire({});
  EXPECT_EQ(first.outcome, SlotOutcome::kHeld);
  EXPECT_GE(Clock::now() - before, 250ms);
  Slots::Request hurried;
  hurried.deadline = Clock::now() + 60s;
  first.slot.release();
  int turns = 0;
  const auto again = Clock::now();
  for (; turns < 20; ++turns)
    EXPECT_EQ(slots.acquire(hurried).outcome, SlotOutcome::kHeld);
  EXPECT_LT(Clock::now() - again, 20 * 250ms) << "not paid again each time";
}

TEST_F(SlotsTest, WhereLocksDoNotWorkItGoesOnWithoutAndCounts) {
  files_.before = [](std::string_view call, int) {
    return call == "set_lock" ? -ENOLCK : 0;
  };
  Slots slots(folder_, files_, counters_, times_, 1);
  EXPECT_EQ(slots.acquire({}).outcome, SlotOutcome::kBypassed);
  EXPECT_EQ(counters_.get(Counter::kLockBypassed), 1U);
}

}  // namespace
}  // namespace kiln::cache
