#include "cache/slots.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <stop_token>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/support/faulty_file_system.h"
#include "tests/support/in_threads.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

class SlotsTest : public testing::Test {
 protected:
  /// A place in the queue of somebody who never takes a slot and is not awake.
  QueuePlace join(unsigned slots = 1) {
    return QueuePlace::join(files_, file_, slots).value();
  }

  /// Keeps a place awake until it is destroyed.
  std::jthread keep_awake(QueuePlace& place) {
    return std::jthread([this, &place](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        place.pulse();
        std::this_thread::sleep_for(times_.no_pulse / 8);
      }
    });
  }

  /// Locks a slot and writes nothing: as a stopped process looks to others.
  OwnedRange silent_holder(std::uint64_t slot) {
    files_.fail("pwrite", EIO);
    auto held = OwnedRange::try_own({&files_, file_, slot}, {}, 1h);
    files_.before = [](auto, int) { return 0; };
    return **std::move(held);
  }

  const test::TempDir dir_;
  const LockFolder folder_{dir_.path() / "locks", {}};
  const std::filesystem::path file_ = folder_.path / "slots";
  test::FaultyFileSystem files_;
  Counters counters_;
  const LockTimes times_{.heartbeat = 20ms,
                         .no_heartbeat = 300ms,
                         .no_record = 300ms,
                         .no_pulse = 500ms,
                         .compile_grace = 100ms};
};

TEST_F(SlotsTest, BoundHowManyRunAtOnce) {
  Slots slots(folder_, files_, counters_, times_, 3);
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  test::in_threads(12, [&] {
    const auto acquired = slots.acquire({});
    EXPECT_EQ(acquired.outcome, SlotOutcome::kHeld);
    const int now = ++inside;
    int seen = most;
    while (seen < now && !most.compare_exchange_weak(seen, now)) {
    }
    std::this_thread::sleep_for(20ms);
    --inside;
  });
  EXPECT_EQ(most, 3);
}

TEST_F(SlotsTest, OfThoseThereAreOnlyAsManyAreGivenAsMayBeNow) {
  std::atomic<unsigned> room = 1;
  Slots slots(folder_, files_, counters_, times_,
              LazyCount(4).bounded_by([&room] { return room.load(); }));
  const auto first = slots.acquire({});
  std::stop_source stop;
  std::jthread impatient([&] {
    std::this_thread::sleep_for(200ms);
    stop.request_stop();
  });
  EXPECT_EQ(slots.acquire({.stop = stop.get_token()}).outcome, SlotOutcome::kCancelled);
  room = 2;
  const auto second = slots.acquire({});
  EXPECT_EQ(second.outcome, SlotOutcome::kHeld);
}

TEST_F(SlotsTest, WhereThereIsRoomForNoneOneIsGivenAllTheSame) {
  Slots slots(folder_, files_, counters_, times_,
              LazyCount(4).bounded_by([] { return 0U; }));
  EXPECT_EQ(slots.acquire({}).outcome, SlotOutcome::kHeld);
}

TEST_F(SlotsTest, AreGivenInTheOrderOfAsking) {
  Slots slots(folder_, files_, counters_, times_, 1);
  auto held = slots.acquire({});
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      const auto acquired = slots.acquire({});
      order.push_back(i);  // one slot: one at a time
    });
    std::this_thread::sleep_for(30ms);
  }
  held.slot.release();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4, 5}));
}

TEST_F(SlotsTest, WhoeverReleasesASlotAndAsksAgainStandsBehindThoseWhoWait) {
  Slots busy(folder_, files_, counters_, times_, 1);
  std::atomic<int> builds = 0;
  std::jthread warm([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const auto acquired = busy.acquire({});
      ++builds;
      std::this_thread::sleep_for(20ms);
    }
  });
  Slots slots(folder_, files_, counters_, times_, 1);  // of another process
  for (int turn = 0; turn < 10; ++turn) {
    const int before = builds;
    const auto acquired = slots.acquire({});
    EXPECT_EQ(acquired.outcome, SlotOutcome::kHeld);
    EXPECT_LE(builds - before, 2);
  }
}

TEST_F(SlotsTest, AStoppedProcessThatIsFirstInTheQueueIsPassedByOnce) {
  const auto stopped = join();
  Slots slots(folder_, files_, counters_, times_, 1);
  const auto before = Clock::now();
  slots.acquire({}).slot.release();
  EXPECT_GE(Clock::now() - before, times_.no_pulse);
  const auto again = Clock::now();
  for (int turn = 0; turn < 20; ++turn)
    EXPECT_EQ(slots.acquire({}).outcome, SlotOutcome::kHeld);
  EXPECT_LT(Clock::now() - again, 20 * times_.no_pulse) << "not paid again each time";
}

TEST_F(SlotsTest, OfTwoBehindAStoppedProcessTheFirstGetsTheSlot) {
  LockTimes times = times_;
  times.longest_pause = 5ms;
  times.no_heartbeat = 10s;
  times.no_pulse = 500ms;
  const auto stopped = join();
  Slots busy(folder_, files_, counters_, times, 1);
  auto held = busy.acquire({});  // now it knows the stopped one
  times.no_pulse += 150ms;       // it hesitates longer than those behind it
  Slots single(folder_, files_, counters_, times, 1);
  std::vector<int> order;
  const auto ask = [&](Slots& slots, int number) {
    std::jthread asks([&slots, &order, number] {
      const auto acquired = slots.acquire({});
      order.push_back(number);  // one slot: one at a time
    });
    std::this_thread::sleep_for(50ms);
    return asks;
  };
  {
    const auto first = ask(single, 1);
    const auto second = ask(busy, 2);
    held.slot.release();
  }
  EXPECT_EQ(order, (std::vector{1, 2}));
}

TEST_F(SlotsTest, HoweverManyAreStoppedThoseBehindThemWaitForOneTurn) {
  LockTimes times = times_;
  times.longest_pause = 10ms;
  times.no_heartbeat = 10s;
  times.no_pulse = 400ms;
  std::vector<QueuePlace> stopped;
  for (int i = 0; i < 40; ++i) stopped.push_back(join());
  const auto before = Clock::now();
  std::vector<std::jthread> processes;
  for (int i = 0; i < 4; ++i) {
    processes.emplace_back([&] {
      Slots slots(folder_, files_, counters_, times, 1);
      EXPECT_EQ(slots.acquire({}).outcome, SlotOutcome::kHeld);
    });
  }
  processes.clear();
  EXPECT_GE(Clock::now() - before, times.no_pulse);
  EXPECT_LT(Clock::now() - before, 4 * times.no_pulse);
}

TEST_F(SlotsTest, WhoeverIsAwakeIsWaitedFor) {
  auto awake = std::make_optional(join());
  auto pulses = keep_awake(*awake);
  const auto before = Clock::now();
  std::jthread leaves([&] {
    std::this_thread::sleep_for(2 * times_.no_pulse);
    pulses = {};
    awake.reset();
  });
  Slots slots(folder_, files_, counters_, times_, 1);
  EXPECT_EQ(slots.acquire({}).outcome, SlotOutcome::kHeld);
  EXPECT_GE(Clock::now() - before, 2 * times_.no_pulse);
}

TEST_F(SlotsTest, WhoeverWasStoppedAndGoesOnIsWaitedForAgain) {
  auto place = join();
  Slots slots(folder_, files_, counters_, times_, 1);
  std::ignore = slots.acquire({});
  EXPECT_LT(slots.acquire({}).waited, times_.no_pulse);
  place.pulse();
  EXPECT_GE(slots.acquire({}).waited, times_.no_pulse) << "passed by for ever";
}

TEST_F(SlotsTest, WhoeverHasFewerSlotsLeavesTheOthers) {
  Slots one(folder_, files_, counters_, times_, 1);
  auto lowest = one.acquire({});
  auto waits = join(1);
  const auto pulses = keep_awake(waits);
  Slots two(folder_, files_, counters_, times_, 2);
  EXPECT_EQ(two.acquire({}).outcome, SlotOutcome::kHeld);
  lowest.slot.release();
  const auto second = two.acquire({});
  EXPECT_LT(second.waited, times_.no_pulse);
  EXPECT_TRUE(OwnedRange::try_own({&files_, file_, 0}, {}, 1h).value())
      << "the lowest slot was taken before the turn of who waits for it";
}

TEST_F(SlotsTest, AHolderThatIsIgnoredLetsNobodyJumpTheQueue) {
  const OwnedRange stopped = silent_holder(0);
  auto first = std::make_optional(join(1));
  auto pulses = keep_awake(*first);
  const auto before = Clock::now();
  std::jthread leaves([&] {
    std::this_thread::sleep_for(2 * times_.no_record);
    pulses = {};
    first.reset();
  });
  Slots slots(folder_, files_, counters_, times_, 1);
  EXPECT_EQ(slots.acquire({}).outcome, SlotOutcome::kHeld);
  EXPECT_GE(Clock::now() - before, 2 * times_.no_record);
}

TEST_F(SlotsTest, SilentHoldersOfAllSlotsAreWaitedForTogether) {
  constexpr unsigned kHolders = 8;
  std::vector<OwnedRange> stopped;
  for (unsigned slot = 0; slot < kHolders; ++slot)
    stopped.push_back(silent_holder(slot));
  std::vector<Slots::Acquired> acquired(kHolders);
  const auto before = Clock::now();
  std::vector<std::jthread> processes;
  for (Slots::Acquired& mine : acquired) {
    processes.emplace_back([&] {
      mine = Slots(folder_, files_, counters_, times_, kHolders).acquire({});
    });
  }
  processes.clear();
  EXPECT_LT(Clock::now() - before, kHolders / 2 * times_.no_record);
  for (const auto& each : acquired) EXPECT_EQ(each.outcome, SlotOutcome::kHeld);
}

TEST_F(SlotsTest, AQueueIsServedQuickly) {
  constexpr int kWaiters = 40;
  Slots slots(folder_, files_, counters_, times_, 1);
  auto held = slots.acquire({});
  std::vector<std::jthread> threads;
  for (int i = 0; i < kWaiters; ++i)
    threads.emplace_back([&] { std::ignore = slots.acquire({}); });
  std::this_thread::sleep_for(200ms);
  const auto before = Clock::now();
  held.slot.release();
  threads.clear();
  EXPECT_LT(Clock::now() - before, kWaiters * 12ms);
}

TEST_F(SlotsTest, WhoeverIsFarBehindAsksTheSystemLittle) {
  constexpr unsigned kSlots = 64;
  std::vector<OwnedRange> holders;
  for (unsigned slot = 0; slot < kSlots; ++slot)
    holders.push_back(*OwnedRange::try_own({&files_, file_, slot}, {}, 1h).value());
  std::vector<QueuePlace> places;
  for (int i = 0; i < 30; ++i) places.push_back(join(kSlots));
  const auto pulses = keep_awake(places.front());
  test::FaultyFileSystem mine;
  Slots slots(folder_, mine, counters_, {}, kSlots);
  std::stop_source source;
  std::jthread stopper([&] {
    std::this_thread::sleep_for(1s);
    source.request_stop();
  });
  Slots::SlotRequest request;
  request.stop = source.get_token();
  EXPECT_EQ(slots.acquire(request).outcome, SlotOutcome::kCancelled);
  const auto calls = mine.calls();
  // A look at all slots at each of some 20 looks at the queue would be 1300.
  EXPECT_LT(std::ranges::count(calls, "find_lock"), 600);
}

TEST_F(SlotsTest, AClockThatIsBehindLetsNobodyJumpTheQueue) {
  // As a container with a time namespace of its own sees the machine's clock.
  const auto now = static_cast<std::uint64_t>((boot_time_now() + 1h).count());
  const auto ahead = FileLock::try_lock({&files_, file_, (1U << 20U) + now, 1});
  ASSERT_TRUE(ahead && *ahead);
  const auto place = join();
  EXPECT_EQ(place.before().size(), 1U);
  EXPECT_EQ(join().before().size(), 2U) << "and those who ask later stand behind it";
}

TEST_F(SlotsTest, APulseIsNoPlaceInTheQueueAndEndsWithItsOwn) {
  auto first = std::make_optional(join(3));
  first->pulse();
  const auto second = join();
  const auto before = second.before();
  ASSERT_EQ(before.size(), 1U);
  EXPECT_EQ(before.front().slots, 3U);
  const auto pulse = second.pulse_of(before.front());
  EXPECT_TRUE(pulse);
  EXPECT_EQ(second.pulse_of(before.front()), pulse);
  first->pulse();
  EXPECT_NE(second.pulse_of(before.front()), pulse);
  first.reset();
  EXPECT_FALSE(second.is_taken(before.front()));
  EXPECT_FALSE(second.pulse_of(before.front()));
}

TEST_F(SlotsTest, ALockOverTheWholeFileIsWaitedForByNobody) {
  const auto whole = FileLock::try_lock({&files_, file_, 0, std::uint64_t{1} << 62U});
  ASSERT_TRUE(whole && *whole);
  Slots slots(folder_, files_, counters_, times_, 1);
  const auto acquired = slots.acquire({});
  EXPECT_EQ(acquired.outcome, SlotOutcome::kBypassed);
  EXPECT_NE(acquired.reason.find(file_.native()), std::string::npos) << acquired.reason;
}

TEST_F(SlotsTest, AQueueThatDoesNotMoveIsLeft) {
  Slots slots(folder_, files_, counters_, times_, 1);
  const auto held = slots.acquire({});
  Slots::SlotRequest request;
  request.build_limit = 300ms;
  const auto acquired = slots.acquire(request);
  EXPECT_EQ(acquired.outcome, SlotOutcome::kBypassed);
  EXPECT_NE(acquired.reason.find("no process"), std::string::npos) << acquired.reason;
  EXPECT_GE(acquired.waited, 300ms);
}

TEST_F(SlotsTest, AStopRequestEndsTheWait) {
  Slots slots(folder_, files_, counters_, times_, 1);
  const auto held = slots.acquire({});
  std::stop_source source;
  Slots::SlotRequest request;
  request.stop = source.get_token();
  std::jthread stopper([&] {
    std::this_thread::sleep_for(50ms);
    source.request_stop();
  });
  EXPECT_EQ(slots.acquire(request).outcome, SlotOutcome::kCancelled);
}

TEST_F(SlotsTest, AWaiterIsToldOfAHolder) {
  Slots slots(folder_, files_, counters_, times_, 1);
  const auto held = slots.acquire({});
  Slots::SlotRequest request;
  request.build_limit = 50ms;
  pid_t seen = 0;
  request.on_wait = [&](const OwnerRecord& holder) { seen = holder.pid; };
  EXPECT_EQ(slots.acquire(request).outcome, SlotOutcome::kBypassed);
  EXPECT_EQ(seen, ::getpid());
}

TEST_F(SlotsTest, ASilentHolderIsWaitedForOnceAndThenIgnored) {
  const OwnedRange stopped = silent_holder(0);
  Slots slots(folder_, files_, counters_, times_, 1);
  const auto before = Clock::now();
  auto first = slots.acquire({});
  EXPECT_EQ(first.outcome, SlotOutcome::kHeld);
  EXPECT_GE(Clock::now() - before, 250ms);
  first.slot.release();
  int turns = 0;
  const auto again = Clock::now();
  for (; turns < 20; ++turns) EXPECT_EQ(slots.acquire({}).outcome, SlotOutcome::kHeld);
  EXPECT_LT(Clock::now() - again, 20 * 250ms) << "not paid again each time";
}

TEST_F(SlotsTest, WhereLocksDoNotWorkItGoesOnWithoutAndCounts) {
  files_.fail("set_lock", ENOLCK);
  Slots slots(folder_, files_, counters_, times_, 1);
  EXPECT_EQ(slots.acquire({}).outcome, SlotOutcome::kBypassed);
  EXPECT_EQ(counters_.get(Counter::kLockBypassed), 1U);
}

}  // namespace
}  // namespace kiln::cache
