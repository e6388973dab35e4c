// Rows 2, 3, 36 and 41: many processes on one root, killed at random again and again,
// and waiting for each other.

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <list>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "cache/cache.h"
#include "tests/support/child_process.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::ChildProcess;
using test::ReferenceObject;

constexpr int kKeys = 48;
constexpr std::size_t kWaiters = 63;

/// Of all processes of the machine alike.
std::chrono::nanoseconds now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

/// What all processes see, and none can take back when it is killed.
struct Shared {
  std::array<std::atomic<bool>, kKeys> published;
  std::array<std::atomic<int>, kKeys> builds;
  std::atomic<int> wrong;
  std::atomic<int> gets;
  std::array<std::atomic<std::int64_t>, kWaiters> done_ns;  // when each had its kernel
};

class KillCampaignTest : public test::CampaignTest {
 protected:
  [[nodiscard]] CacheOptions options() const {
    CacheOptions options;
    options.root = dir_.path() / "root";
    options.slots = 4;
    return options;
  }

  /// What a service does, with a build of a millisecond.
  void get(Cache& cache, int number) {
    ReferenceObject object(number);
    ++shared_->gets;
    auto found = cache.find(object.key());
    if (!found) {
      const auto locked = cache.lock({.key = object.key(), .look_again = [&] {
                                        found = cache.look_again(object.key());
                                        return found.has_value();
                                      }});
      if (!found) {
        std::this_thread::sleep_for(1ms);
        ++shared_->builds[static_cast<std::size_t>(number)];
        if (cache.publish(*object).outcome != Published::kNotStored)
          shared_->published[static_cast<std::size_t>(number)] = true;
        return;
      }
    }
    if (as_text(found->payload()) != object.payload())
      ++shared_->wrong;
  }

  /// A process that gets kernels, lists, counts and checks until it is killed.
  ChildProcess user(unsigned seed) {
    return ChildProcess([this, seed] {
      std::mt19937 random(seed);
      for (;;) {
        const auto cache = Cache::open(options());
        for (int i = 0; i < 40; ++i) get(*cache, static_cast<int>(random() % kKeys));
        std::ignore = cache->list({.limit = 10});
        std::ignore = cache->stats();
        if (random() % 4 == 0)
          std::ignore = cache->verify({.quarantine = Quarantine::kYes});
      }
      return 0;
    });
  }

  [[nodiscard]] CacheOptions one_slot() const {
    CacheOptions one = options();
    one.slots = 1;
    one.build_limit = 10s;  // whoever starves goes on without one
    return one;
  }

  /// A process that takes a slot for `time`, again and again, until it is killed.
  ChildProcess builds_without_end(const CacheOptions& options,
                                  std::chrono::milliseconds time) {
    return ChildProcess([this, options, time] {
      const auto cache = Cache::open(options);
      for (;;) {
        const auto slot = cache->acquire_slot({});
        ++shared_->builds[0];
        std::this_thread::sleep_for(time);
      }
      return 0;
    });
  }

  /// A process that is stopped while its threads wait for slots; it ends with 0 if all
  /// get one.
  static ChildProcess stopped_in_the_queue(const CacheOptions& options,
                                           int threads = 1) {
    test::Signal waits;
    ChildProcess child([&] {
      const auto cache = Cache::open(options);
      std::atomic<int> missed = 0;
      std::vector<std::jthread> builds;
      for (int i = 0; i < threads; ++i) {
        builds.emplace_back([&] {
          bool told = false;
          const auto slot = cache->acquire_slot({.on_wait = [&](const OwnerRecord&) {
            if (!std::exchange(told, true))
              waits.raise();
          }});
          missed += slot.outcome == SlotOutcome::kHeld ? 0 : 1;
        });
      }
      builds.clear();
      return missed.load();
    });
    for (int i = 0; i < threads; ++i) waits.wait();
    child.signal(SIGSTOP);
    return child;
  }

  void expect_whole() {
    if (shared_->wrong > 0)
      campaign_.wrong(std::to_string(shared_->wrong) + " hits had other bytes");
    const auto cache = Cache::open(options());
    campaign_.check_hits(*cache, kKeys, "after the campaign");
    for (int number = 0; number < kKeys; ++number) {
      if (shared_->published[static_cast<std::size_t>(number)] &&
          !cache->find(ReferenceObject(number).key()))
        campaign_.wrong("object " + std::to_string(number) + " was published and lost");
    }
    const auto verified = cache->verify({});
    if (!verified || !verified->problems.empty())
      campaign_.wrong("verify finds damage");
  }

  const test::TempDir dir_;
  const test::SharedWithChildren<Shared> shared_;
};

TEST_F(KillCampaignTest, fault_02_RandomKillsAmongManyProcessesHurtNobody) {
  const int kills = 500 * static_cast<int>(test::fault_length());
  std::mt19937 random(20'260);  // the kills differ all the same: so does time
  std::list<ChildProcess> users;
  for (unsigned i = 0; i < 16; ++i) users.push_back(user(i));
  for (int kill = 0; kill < kills; ++kill) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    const auto victim =
        std::next(users.begin(), static_cast<std::ptrdiff_t>(random() % users.size()));
    victim->signal(SIGKILL);
    if (victim->wait() != -SIGKILL)
      campaign_.wrong("a process ended by itself");
    campaign_.injected();
    users.erase(victim);
    users.push_back(user(static_cast<unsigned>(kill) + 1000));
  }
  users.clear();
  expect_whole();
  EXPECT_GT(shared_->gets, kills) << "they were killed before they did anything";
}

TEST_F(KillCampaignTest, fault_03_EachWaiterGoesOnAtOnceWhenTheHolderIsKilled) {
  // Some fifty milliseconds where the machine is at rest, and far less than the ten
  // seconds without a heartbeat after which each would go on without the lock.
  constexpr auto kLongestWait = 2s;
  test::Signal holds;
  ChildProcess holder([&] {
    const auto cache = Cache::open(options());
    auto held = cache->lock({.key = ReferenceObject(0).key()});
    held.lock.set_phase(Phase::kCompiling);
    holds.raise();
    std::this_thread::sleep_for(60s);
    return 1;
  });
  holds.wait();
  test::Signal waits;
  std::vector<ChildProcess> waiters;
  for (std::size_t i = 0; i < kWaiters; ++i) {
    waiters.emplace_back([&, i] {
      const auto cache = Cache::open(options());
      waits.raise();
      get(*cache, 0);
      shared_->done_ns[i] = now().count();
      // Nobody gave up waiting: the dead holder's lock was free for all.
      return cache->counters().get(Counter::kLockBypassed) == 0 ? 0 : 1;
    });
  }
  for (std::size_t i = 0; i < kWaiters; ++i) waits.wait();
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(shared_->builds[0], 0) << "somebody built beside a living holder";
  const auto killed = now();  // before it: who waits may be done before this goes on
  holder.signal(SIGKILL);
  campaign_.injected();
  for (ChildProcess& waiter : waiters) EXPECT_EQ(waiter.wait(), 0);
  std::vector<std::chrono::nanoseconds> waited;
  for (const auto& done : shared_->done_ns)
    waited.push_back(std::chrono::nanoseconds(done) - killed);
  std::ranges::sort(waited);
  for (const auto& each : waited) {
    if (each <= 0s || each > kLongestWait)
      campaign_.wrong("one waited for " + std::to_string(each / 1ms) + " ms");
  }
  std::printf(
      "of %zu waiters the first was done %lld ms after the kill, the last %lld\n",
      kWaiters, static_cast<long long>(waited.front() / 1ms),
      static_cast<long long>(waited.back() / 1ms));
  EXPECT_EQ(shared_->builds[0], 1);
  expect_whole();
}

TEST_F(KillCampaignTest, fault_41_ASingleBuildWaitsForTwoOfAProcessThatNeverEnds) {
  const ChildProcess warm = builds_without_end(one_slot(), 10ms);
  const auto cache = Cache::open(one_slot());
  while (shared_->builds[0] == 0) std::this_thread::sleep_for(1ms);
  for (int turn = 0; turn < 20; ++turn) {
    const int before = shared_->builds[0];
    const auto slot = cache->acquire_slot({});
    campaign_.injected();
    if (slot.outcome != SlotOutcome::kHeld || shared_->builds[0] - before > 2)
      campaign_.wrong("it waited for " + std::to_string(shared_->builds[0] - before));
  }
}

TEST_F(KillCampaignTest, fault_41_AStoppedProcessThatIsFirstInTheQueueIsPassedBy) {
  const auto cache = Cache::open(one_slot());
  auto held = cache->acquire_slot({});
  ChildProcess first = stopped_in_the_queue(one_slot());
  campaign_.injected();
  held.slot.release();
  const auto began = now();
  EXPECT_EQ(cache->acquire_slot({}).outcome, SlotOutcome::kHeld);
  EXPECT_LT(now() - began, 10s);
  first.signal(SIGCONT);
  campaign_.expect_end(first);
}

TEST_F(KillCampaignTest, fault_41_AProcessStoppedInManyPlacesCostsNoMoreThanInOne) {
  const auto cache = Cache::open(one_slot());
  auto held = cache->acquire_slot({});
  const ChildProcess stopped = stopped_in_the_queue(one_slot(), 64);
  campaign_.injected();
  held.slot.release();
  const auto slot = cache->acquire_slot({});
  EXPECT_EQ(slot.outcome, SlotOutcome::kHeld);
  EXPECT_LT(slot.waited, 3 * LockTimes().no_pulse);
}

TEST_F(KillCampaignTest, fault_41_BehindAStoppedProcessASingleBuildWaitsForTwo) {
  const auto cache = Cache::open(one_slot());
  auto held = cache->acquire_slot({});
  const ChildProcess stopped = stopped_in_the_queue(one_slot());
  const ChildProcess warm = builds_without_end(one_slot(), 10ms);
  campaign_.injected();
  held.slot.release();
  while (shared_->builds[0] == 0) std::this_thread::sleep_for(1ms);  // it passed by
  for (int turn = 0; turn < 5; ++turn) {
    const int before = shared_->builds[0];
    const auto slot = cache->acquire_slot({});
    if (slot.outcome != SlotOutcome::kHeld || shared_->builds[0] - before > 2)
      campaign_.wrong("it waited for " + std::to_string(shared_->builds[0] - before));
  }
}

TEST_F(KillCampaignTest, fault_41_AProcessThatWasStoppedForAMomentIsServedAgain) {
  const auto cache = Cache::open(one_slot());
  auto held = cache->acquire_slot({});
  const ChildProcess stopped = stopped_in_the_queue(one_slot());
  ChildProcess single = stopped_in_the_queue(one_slot());
  const ChildProcess warm = builds_without_end(one_slot(), 100ms);
  campaign_.injected();
  held.slot.release();
  while (shared_->builds[0] == 0)
    std::this_thread::sleep_for(1ms);  // it passed by both
  const int before = shared_->builds[0];
  single.signal(SIGCONT);
  campaign_.expect_end(single);
  // One runs, and one more begins before the single build is seen to be awake.
  if (shared_->builds[0] - before > 5)
    campaign_.wrong("it waited for " + std::to_string(shared_->builds[0] - before));
}

TEST_F(KillCampaignTest, fault_36_AStampedeBuildsEachKeyOnce) {
  constexpr int kProcesses = 64;
  test::Signal go;
  std::vector<ChildProcess> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.emplace_back([&, i] {
      const auto cache = Cache::open(options());
      go.wait();
      for (int key = 0; key < kKeys; ++key) get(*cache, (key + i) % kKeys);
      return 0;
    });
  }
  for (int i = 0; i < kProcesses; ++i) go.raise();
  for (ChildProcess& child : children) EXPECT_EQ(child.wait(), 0);
  campaign_.injected(kProcesses * kKeys);
  for (const auto& builds : shared_->builds) EXPECT_EQ(builds, 1);
  expect_whole();
}

}  // namespace
}  // namespace kiln::cache
