// Rows 5 and 21: processes that are stopped in the middle of something, and go on
// later.

#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <string_view>
#include <tuple>
#include <utility>

#include "cache/cache.h"
#include "tests/support/child_process.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/processes.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::ChildProcess;
using test::ReferenceObject;

constexpr int kObjects = 6;
constexpr auto kPatience = 20s;

bool is_stopped(pid_t pid) {
  int status = 0;
  return ::waitpid(pid, &status, WUNTRACED | WNOHANG) == pid && WIFSTOPPED(status);
}

class StoppedProcessTest : public test::CampaignTest {
 protected:
  StoppedProcessTest() {
    const auto cache = Cache::open(options());
    for (int i = 0; i < kObjects; ++i) EXPECT_TRUE(publish(*cache, i));
    cache->flush(5s);
  }

  [[nodiscard]] CacheOptions options() const {
    CacheOptions options;
    options.root = dir_.path() / "root";
    options.lock_times = {.heartbeat = 50ms, .no_heartbeat = 500ms};
    return options;
  }

  static bool publish(Cache& cache, int number) {
    return cache.publish(*ReferenceObject(number)).outcome == Published::kStored;
  }

  /// A process that stops itself before its first call of that name.
  template <typename Work>
  ChildProcess stops_at(std::string_view call, const Work& work) {
    ChildProcess child([&, call] {
      test::FaultyFileSystem files;
      bool stopped = false;
      files.before = [&](std::string_view name, int) {
        if (name == call && !std::exchange(stopped, true))
          ::raise(SIGSTOP);
        return 0;
      };
      CacheOptions mine = options();
      mine.file_system = &files;
      const auto cache = Cache::open(mine);
      return work(*cache) && stopped ? 0 : 1;
    });
    EXPECT_TRUE(test::eventually(kPatience, [&] { return is_stopped(child.pid()); }));
    return child;
  }

  static TrimOptions to_nothing() { return {.limit_bytes = 1, .minimum_age = 0s}; }

  const test::TempDir dir_;
};

TEST_F(StoppedProcessTest,
       fault_05_AStoppedCollectorIsNotWaitedForAndHurtsNobodyLater) {
  ChildProcess collector = stops_at(
      "unlink", [](Cache& cache) { return cache.trim(to_nothing()).has_value(); });
  campaign_.injected();
  const auto cache = Cache::open(options());
  campaign_.check_hits(*cache, kObjects, "beside a stopped collector");
  EXPECT_TRUE(publish(*cache, kObjects));
  const auto first = cache->trim({});
  ASSERT_FALSE(first) << "there is one already";
  EXPECT_NE(first.error().message.find(std::to_string(collector.pid())),
            std::string::npos)
      << first.error().message;
  EXPECT_TRUE(test::eventually(kPatience, [&] { return cache->trim({}).has_value(); }))
      << "it is never given up";
  collector.signal(SIGCONT);
  EXPECT_EQ(collector.wait(), 0);
  campaign_.check_hits(*cache, kObjects + 1, "when the collector went on");
  EXPECT_TRUE(cache->verify({}).value().problems.empty());
}

TEST_F(StoppedProcessTest, fault_21_WhatIsUsedWhileACollectorIsStoppedStays) {
  // All are old: the collector has chosen them, and looks at each again.
  for (int i = 0; i < kObjects; ++i) {
    std::filesystem::last_write_time(
        Cache::open(options())->layout().object(ReferenceObject(i).key()),
        std::filesystem::file_time_type::clock::now() - std::chrono::hours(48));
  }
  ChildProcess collector = stops_at(
      "unlink", [](Cache& cache) { return cache.trim(to_nothing()).has_value(); });
  campaign_.injected();
  const auto cache = Cache::open(options());
  campaign_.check_hits(*cache, kObjects, "beside a stopped collector");
  collector.signal(SIGCONT);
  EXPECT_EQ(collector.wait(), 0);
  int left = 0;
  for (int i = 0; i < kObjects; ++i)
    left += cache->find(ReferenceObject(i).key()) ? 1 : 0;
  EXPECT_GE(left, kObjects - 1) << "only the one that it was about to delete may go";
}

TEST_F(StoppedProcessTest, fault_05_AStoppedRebuilderOfTheIndexIsNotWaitedFor) {
  std::filesystem::remove(dir_.path() / "root/index.sqlite");
  ChildProcess rebuilder = stops_at("rename", [](Cache& cache) {
    return cache.list({}).value().size() >= std::size_t{kObjects};
  });
  campaign_.injected();
  const auto cache = Cache::open(options());
  const auto began = Clock::now();
  campaign_.check_hits(*cache, kObjects, "beside a stopped rebuilder");
  EXPECT_TRUE(publish(*cache, kObjects));
  EXPECT_EQ(cache->list({}).value().size(), std::size_t{kObjects + 1});
  EXPECT_LT(Clock::now() - began, kPatience);
  rebuilder.signal(SIGCONT);
  EXPECT_EQ(rebuilder.wait(), 0);
  EXPECT_EQ(Cache::open(options())->list({}).value().size(), std::size_t{kObjects + 1});
}

TEST_F(StoppedProcessTest, fault_05_AStoppedPublisherIsNotWaitedForAndLosesToOthers) {
  for (const char* call : {"write", "fdatasync", "fchmod", "link", "unlink"}) {
    SCOPED_TRACE(call);
    ChildProcess publisher = stops_at(call, [](Cache& cache) {
      ReferenceObject object(kObjects);
      return cache.publish(*object).outcome != Published::kNotStored;
    });
    campaign_.injected();
    const auto cache = Cache::open(options());
    std::ignore = cache->publish(*ReferenceObject(kObjects));
    EXPECT_TRUE(cache->find(ReferenceObject(kObjects).key()));
    publisher.signal(SIGCONT);
    EXPECT_EQ(publisher.wait(), 0);
    campaign_.check_hits(*cache, kObjects + 1,
                         std::string("when it went on at ") + call);
    EXPECT_TRUE(cache->remove(ReferenceObject(kObjects).key()));
  }
}

TEST_F(StoppedProcessTest, fault_05_AStoppedHolderOfALockIsGivenUpAndGoesOnUnharmed) {
  ChildProcess holder([&] {
    const auto cache = Cache::open(options());
    auto held = cache->lock({.key = ReferenceObject(kObjects).key()});
    held.lock.set_phase(Phase::kCompiling);
    ::raise(SIGSTOP);
    return cache->publish(*ReferenceObject(kObjects)).outcome ==
                   Published::kAlreadyThere
               ? 0
               : 1;
  });
  ASSERT_TRUE(test::eventually(kPatience, [&] { return is_stopped(holder.pid()); }));
  campaign_.injected();
  const auto cache = Cache::open(options());
  const auto acquired = cache->lock({.key = ReferenceObject(kObjects).key()});
  EXPECT_EQ(acquired.outcome, LockOutcome::kBypassed);
  EXPECT_TRUE(publish(*cache, kObjects));
  holder.signal(SIGCONT);
  EXPECT_EQ(holder.wait(), 0);
  campaign_.check_hits(*cache, kObjects + 1, "when the holder went on");
}

TEST_F(StoppedProcessTest, fault_05_AStoppedHolderOfASlotIsGivenUp) {
  ChildProcess holder([&] {
    const auto cache = Cache::open(options());
    const auto slot = cache->acquire_slot({});
    ::raise(SIGSTOP);
    return slot.outcome == SlotOutcome::kHeld ? 0 : 1;
  });
  ASSERT_TRUE(test::eventually(kPatience, [&] { return is_stopped(holder.pid()); }));
  campaign_.injected();
  const auto cache = Cache::open(options());
  const auto began = Clock::now();
  EXPECT_EQ(cache->acquire_slot({}).outcome, SlotOutcome::kHeld);
  EXPECT_LT(Clock::now() - began, kPatience);
  holder.signal(SIGCONT);
  EXPECT_EQ(holder.wait(), 0);
}

}  // namespace
}  // namespace kiln::cache
