#include "cache/key_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <stop_token>
#include <thread>

#include "tests/support/faulty_file_system.h"
#include "tests/support/in_threads.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/bytes.h"

namespace kiln::cache {
namespace {

class KeyLockTest : public testing::Test {
 protected:
  KeyLock::Context context() { return {folder_, files_, counters_, times_}; }
  KeyLock::Acquired acquire(const KeyLock::LockRequest& request) {
    return KeyLock::acquire(context(), request);
  }
  /// kCancelled: after `time` it still waited.
  KeyLock::Acquired acquire_within(std::chrono::milliseconds time,
                                   KeyLock::LockRequest request) {
    std::stop_source source;
    request.stop = source.get_token();
    const std::jthread stopper([&] {
      std::this_thread::sleep_for(time);
      source.request_stop();
    });
    return acquire(request);
  }
  KeyLock::LockRequest request(std::string_view name = "k") {
    KeyLock::LockRequest request;
    request.key = Digest::of(as_bytes(name));
    return request;
  }
  OwnedRange::Place place_of(const Digest& key) {
    const auto byte = [&](std::size_t i) {
      return std::to_integer<std::uint64_t>(key.bytes()[i]);
    };
    return {&files_, folder_.path / key.hex().substr(0, 2),
            (byte(1) << 8U | byte(2)) % 4096};
  }

  const test::TempDir dir_;
  const LockFolder folder_{dir_.path() / "locks", {}};
  test::FaultyFileSystem files_;
  Counters counters_;
  LockTimes times_{.heartbeat = 20ms,
                   .no_heartbeat = 300ms,
                   .no_record = 400ms,
                   .compile_grace = 100ms};
};

TEST_F(KeyLockTest, IsHeldByOneUntilItIsReleased) {
  auto first = acquire(request());
  ASSERT_EQ(first.outcome, LockOutcome::kHeld);
  std::thread release([&] {
    std::this_thread::sleep_for(200ms);
    first.lock.release();
  });
  const auto second = acquire(request());
  release.join();
  EXPECT_EQ(second.outcome, LockOutcome::kHeld);
  EXPECT_GE(second.waited, 150ms);
  EXPECT_EQ(counters_.get(Counter::kLockWaited), 1U);
}

TEST_F(KeyLockTest, KeysDoNotWaitForEachOther) {
  const auto first = acquire(request("a"));
  const auto second = acquire(request("b"));
  EXPECT_EQ(first.outcome, LockOutcome::kHeld);
  EXPECT_EQ(second.outcome, LockOutcome::kHeld);
}

TEST_F(KeyLockTest, KeysThatShareAPlaceDoNotWaitForEachOther) {
  KeyLock::LockRequest a = request();
  KeyLock::LockRequest b = request();
  std::array<std::byte, Digest::kSize> bytes{};
  std::ranges::copy(a.key.bytes(), bytes.begin());
  bytes[9] ^= std::byte{1};
  b.key = Digest(bytes);
  const auto first = acquire(a);
  const auto second = acquire(b);
  EXPECT_EQ(first.outcome, LockOutcome::kHeld);
  EXPECT_EQ(second.outcome, LockOutcome::kBypassed);
  EXPECT_NE(second.reason.find("another key"), std::string::npos) << second.reason;
}

TEST_F(KeyLockTest, AnObjectThatAppearsEndsTheWait) {
  const auto holder = acquire(request());
  std::atomic<bool> there = false;
  std::thread publisher([&] {
    std::this_thread::sleep_for(100ms);
    there = true;
  });
  auto waiting = request();
  waiting.look_again = [&] { return there.load(); };
  EXPECT_EQ(acquire(waiting).outcome, LockOutcome::kAppeared);
  publisher.join();
}

TEST_F(KeyLockTest, LooksAgainAfterTheLockWasGot) {
  auto asking = request();
  asking.look_again = [] { return true; };
  EXPECT_EQ(acquire(asking).outcome, LockOutcome::kAppeared);
  EXPECT_EQ(acquire(request()).outcome, LockOutcome::kHeld) << "and holds nothing";
}

TEST_F(KeyLockTest, AStopRequestEndsTheWaitAtOnce) {
  const auto holder = acquire(request());
  EXPECT_EQ(acquire_within(50ms, request()).outcome, LockOutcome::kCancelled);
}

TEST_F(KeyLockTest, ALivingHolderIsWaitedForLongerThanTheHeartbeatLimit) {
  auto holder = acquire(request());
  EXPECT_EQ(acquire_within(900ms, request()).outcome, LockOutcome::kCancelled);
}

TEST_F(KeyLockTest, AHolderWithoutAHeartbeatIsGivenUp) {
  // A lock that no process of ours takes care of: as a stopped process leaves it.
  files_.fail("pwrite", EIO);
  auto holder = acquire(request());
  files_.before = [](auto, int) { return 0; };
  OwnerRecord record;
  record.pid = 4711;
  record.key = request().key;
  record.started = record.phase_started = record.heartbeat = boot_time_now() - 1h;
  record.phase = Phase::kCompiling;
  record.build_limit = 24h;
  const auto place = place_of(request().key);
  const int fd = files_.open(place.file.c_str(), O_WRONLY, 0);
  files_.fail("pwrite", EIO);
  ASSERT_GT(cache::real_file_system().pwrite(fd, record.encode(),
                                             place.record * kOwnerRecordBytes),
            0);
  files_.close(fd);
  const auto waited = acquire(request());
  EXPECT_EQ(waited.outcome, LockOutcome::kBypassed);
  EXPECT_NE(waited.reason.find("process 4711, compiling"), std::string::npos)
      << waited.reason;
  EXPECT_LT(waited.waited, 250ms) << "silent since long ago: two beats are enough";
  EXPECT_EQ(counters_.get(Counter::kLockBypassed), 1U);
}

TEST_F(KeyLockTest, AHolderThatLeavesNoRecordIsWaitedForBriefly) {
  // As on a full disk, or a holder that was stopped before it could write.
  files_.fail("pwrite", ENOSPC);
  const auto holder = acquire(request());
  const auto waited = acquire(request());
  EXPECT_EQ(waited.outcome, LockOutcome::kBypassed);
  EXPECT_NE(waited.reason.find("without a record"), std::string::npos) << waited.reason;
  EXPECT_GE(waited.waited, times_.no_record);
}

TEST_F(KeyLockTest, NobodyWaitsForTwoBuilds) {
  auto first = acquire(request());
  first.lock.set_phase(Phase::kCompiling);
  std::atomic<int> held = 0;
  std::atomic<int> bypassed = 0;
  std::vector<std::thread> waiters;
  for (int i = 0; i < 8; ++i) {
    waiters.emplace_back([&] {
      const auto mine = acquire(request());
      ++(mine.outcome == LockOutcome::kHeld ? held : bypassed);
      // Whoever holds it builds for as long as anybody waits.
      while (held + bypassed < 8) std::this_thread::sleep_for(1ms);
    });
  }
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(held + bypassed, 0);
  first.lock.end_build();
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(held, 1);
  EXPECT_EQ(bypassed, 7);
}

TEST_F(KeyLockTest, ABuildThatNeverEndedIsNotCounted) {
  auto killed = acquire(request());
  std::thread next([&] {
    std::this_thread::sleep_for(100ms);
    killed.lock.release();  // what the system does for a killed process
    const auto second = acquire(request());
    std::this_thread::sleep_for(400ms);
  });
  std::this_thread::sleep_for(20ms);
  const auto waited = acquire_within(300ms, request());
  next.join();
  EXPECT_NE(waited.outcome, LockOutcome::kBypassed) << waited.reason;
}

TEST_F(KeyLockTest, HoldersThatAreKilledOneAfterAnotherAreNotWaitedForWithoutEnd) {
  auto impatient = request();
  impatient.build_limit = 20ms;
  const auto holder = acquire(impatient);
  // The lock is never free for long enough, and each new holder has just begun.
  const std::jthread others([&](const std::stop_token& over) {
    OwnerRecord record = holder.lock.record();
    const auto place = place_of(impatient.key);
    const int fd = files_.open(place.file.c_str(), O_WRONLY, 0);
    while (!over.stop_requested()) {
      record.started = record.phase_started = record.heartbeat = boot_time_now();
      std::ignore = real_file_system().pwrite(fd, record.encode(),
                                              place.record * kOwnerRecordBytes);
      std::this_thread::sleep_for(5ms);
    }
    files_.close(fd);
  });
  const auto waited = acquire_within(2s, impatient);
  EXPECT_EQ(waited.outcome, LockOutcome::kBypassed);
  EXPECT_NE(waited.reason.find("no build has ended"), std::string::npos)
      << waited.reason;
  EXPECT_GE(waited.waited, 4 * (impatient.build_limit + times_.compile_grace));
}

TEST_F(KeyLockTest, TheEndOfABuildAnswersWhoWaitedForItAndNobodyLater) {
  auto builder = acquire(request());
  const OwnerRecord record = builder.lock.record();
  std::thread end([&] {
    std::this_thread::sleep_for(100ms);
    builder.lock.end_build(BuildEnd::kTimedOut);
  });
  auto asking = request();
  int asked = 0;
  asking.is_answer = [&](const OwnerRecord& seen) {
    ++asked;
    EXPECT_TRUE(seen.timed_out);
    return seen.same_owner(record);
  };
  EXPECT_EQ(acquire(asking).outcome, LockOutcome::kAnswered);
  end.join();
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(acquire(asking).outcome, LockOutcome::kHeld) << "it came later";
  EXPECT_EQ(asked, 1);
}

TEST_F(KeyLockTest, ATimeOutIsKnownUntilAHolderHasAnotherLimit) {
  acquire(request()).lock.end_build(BuildEnd::kTimedOut);
  auto same = acquire(request());
  EXPECT_TRUE(same.lock.record().timed_out);
  same.lock.release();
  auto other = request();
  other.build_limit += 1s;
  EXPECT_FALSE(acquire(other).lock.record().timed_out);
}

TEST_F(KeyLockTest, AfterABuildThatWasKilledOneOfThoseWhoWaitTriesAndKnowsIt) {
  auto builder = acquire(request());
  EXPECT_FALSE(builder.is_second_try);
  std::thread end([&] {
    std::this_thread::sleep_for(100ms);
    builder.lock.end_build(BuildEnd::kKilled);
  });
  auto asking = request();
  asking.is_answer = [](const OwnerRecord&) { return true; };
  auto second = acquire(asking);
  end.join();
  ASSERT_EQ(second.outcome, LockOutcome::kHeld) << "no build has ended";
  EXPECT_TRUE(second.is_second_try);
  second.lock.end_build(BuildEnd::kKilled);
  EXPECT_FALSE(acquire(request()).is_second_try) << "it has waited for nobody";
}

TEST_F(KeyLockTest, AnEarlierKilledBuildIsNotThatOfAHolderThatVanished) {
  acquire(request()).lock.end_build(BuildEnd::kKilled);
  auto holder = acquire(request());
  std::thread end([&] {
    std::this_thread::sleep_for(100ms);
    holder.lock.release();
  });
  EXPECT_FALSE(acquire(request()).is_second_try);
  end.join();
}

TEST_F(KeyLockTest, WhoeverDoesNotWantToWaitDoesNot) {
  const auto holder = acquire(request());
  auto hurried = request();
  hurried.wait = false;
  EXPECT_EQ(acquire(hurried).outcome, LockOutcome::kBypassed);
  EXPECT_EQ(counters_.get(Counter::kLockWaited), 0U);
}

TEST_F(KeyLockTest, AHolderThatCompilesForTooLongIsGivenUp) {
  auto slow = request();
  slow.build_limit = 100ms;
  auto holder = acquire(slow);
  holder.lock.set_phase(Phase::kCompiling);
  const auto waited = acquire(request());
  EXPECT_EQ(waited.outcome, LockOutcome::kBypassed);
  EXPECT_NE(waited.reason.find("over its limit"), std::string::npos) << waited.reason;
}

TEST_F(KeyLockTest, QueueingForASlotDoesNotCountAsCompiling) {
  auto slow = request();
  slow.build_limit = 400ms;
  auto holder = acquire(slow);
  holder.lock.set_phase(Phase::kQueued);
  std::thread begins([&] {
    std::this_thread::sleep_for(350ms);
    holder.lock.set_phase(Phase::kCompiling);
  });
  EXPECT_EQ(acquire_within(700ms, request()).outcome, LockOutcome::kCancelled);
  begins.join();
}

TEST_F(KeyLockTest, AHolderIsGivenUpInWhateverPhaseItStays) {
  for (const Phase phase : {Phase::kStarting, Phase::kQueued, Phase::kPublishing}) {
    auto slow = request();
    slow.build_limit = 100ms;
    auto holder = acquire(slow);
    holder.lock.set_phase(phase);
    const auto waited = acquire(request());
    EXPECT_EQ(waited.outcome, LockOutcome::kBypassed);
    EXPECT_NE(waited.reason.find(to_string(phase)), std::string::npos) << waited.reason;
  }
}

TEST_F(KeyLockTest, AnObjectOfABuildThatEndsDuringALookIsFound) {
  auto builder = acquire(request());
  auto waiting = request();
  bool is_there = false;
  int looks = 0;
  waiting.look_again = [&] {
    if (++looks != 2)
      return is_there;
    is_there = true;  // published after this look began
    builder.lock.end_build();
    return false;
  };
  EXPECT_EQ(acquire(waiting).outcome, LockOutcome::kAppeared);
  EXPECT_EQ(looks, 3);
}

TEST_F(KeyLockTest, AWaiterIsToldWhomItWaitsFor) {
  auto holder = acquire(request());
  holder.lock.set_phase(Phase::kCompiling);
  auto waiting = request();
  pid_t seen = 0;
  Phase phase = Phase::kStarting;
  waiting.on_wait = [&](const OwnerRecord& owner) {
    seen = owner.pid;
    phase = owner.phase;
  };
  EXPECT_EQ(acquire_within(100ms, waiting).outcome, LockOutcome::kCancelled);
  EXPECT_EQ(seen, ::getpid());
  EXPECT_EQ(phase, Phase::kCompiling);
}

TEST_F(KeyLockTest, WhereLocksDoNotWorkItGoesOnWithoutAndCounts) {
  for (const int err : {-ENOLCK, -ENOSYS, -EOPNOTSUPP}) {
    files_.before = [&](std::string_view call, int) {
      return call == "set_lock" ? err : 0;
    };
    EXPECT_EQ(acquire(request()).outcome, LockOutcome::kBypassed);
  }
  EXPECT_EQ(counters_.get(Counter::kLockBypassed), 3U);
}

TEST_F(KeyLockTest, WithoutAFolderItGoesOnWithout) {
  const LockFolder none{{}, "no local folder"};
  const auto acquired = KeyLock::acquire({none, files_, counters_, times_}, request());
  EXPECT_EQ(acquired.outcome, LockOutcome::kBypassed);
  EXPECT_EQ(acquired.reason, "no local folder");
}

TEST_F(KeyLockTest, LockFilesAreNeverRemoved) {
  acquire(request()).lock.release();
  EXPECT_EQ(dir_.files().size(), 1U);
}

TEST_F(KeyLockTest, ManyThreadsTakeTurns) {
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  test::in_threads(16, [&] {
    const auto held = acquire(request());
    EXPECT_EQ(held.outcome, LockOutcome::kHeld);
    most = std::max(most.load(), ++inside);
    std::this_thread::sleep_for(2ms);
    --inside;
  });
  EXPECT_EQ(most, 1);
}

TEST(OwnerRecord, SurvivesItsEncodingAndIsSixtyFourBytes) {
  OwnerRecord record;
  record.pid = 17;
  record.phase = Phase::kQueued;
  record.key = Digest::of(as_bytes("k"));
  record.started = 3s;
  record.phase_started = 4s;
  record.heartbeat = 5s;
  record.build_limit = 6s;
  record.builds_ended = 7;
  record.timed_out = true;
  const Bytes bytes = record.encode();
  ASSERT_EQ(bytes.size(), kOwnerRecordBytes);
  const OwnerRecord read = OwnerRecord::decode(bytes).value();
  EXPECT_TRUE(read.same_owner(record));
  EXPECT_TRUE(read.has_key(record.key));
  EXPECT_EQ(read.phase, Phase::kQueued);
  EXPECT_EQ(read.heartbeat, 5s);
  EXPECT_EQ(read.build_limit, 6s);
  EXPECT_EQ(read.builds_ended, 7U);
  EXPECT_TRUE(read.timed_out);
  EXPECT_FALSE(OwnerRecord::decode(Bytes(kOwnerRecordBytes)));
}

class LockFolderTest : public testing::Test {
 protected:
  LockFolder find(const std::filesystem::path& runtime) {
    return find_lock_folder(Layout(dir_.path() / "root"), files_,
                            TrustPolicy::of_this_process({}), runtime,
                            dir_.path() / "persistent");
  }
  void root_is_on(std::int64_t type) {
    files_.on_type = [this, type](std::string_view path) {
      return path.starts_with((dir_.path() / "root").native()) ? type : 0;
    };
  }
  void SetUp() override { std::filesystem::create_directory(dir_.path() / "root"); }

  static constexpr std::int64_t kNfs = 0x6969;
  const test::TempDir dir_;
  test::FaultyFileSystem files_;
};

TEST_F(LockFolderTest, IsInTheRootOnALocalFileSystem) {
  EXPECT_EQ(find({}).path, dir_.path() / "root" / "locks");
}

TEST_F(LockFolderTest, IsNeverOnANetworkFileSystem) {
  root_is_on(kNfs);
  EXPECT_EQ(find(dir_.path() / "run").path.parent_path(), dir_.path() / "run" / "kiln");
  EXPECT_EQ(find({}).path.parent_path().parent_path(), dir_.path() / "persistent");
  EXPECT_EQ(find({}).path, find({}).path) << "the same for every process";
  EXPECT_FALSE(std::filesystem::exists(dir_.path() / "root" / "locks"));
}

TEST_F(LockFolderTest, IsNoneWhereAllIsOnTheNetwork) {
  files_.on_type = [](std::string_view) { return kNfs; };
  const LockFolder folder = find(dir_.path() / "run");
  EXPECT_FALSE(folder.usable());
  EXPECT_NE(folder.why.find("nfs"), std::string::npos);
}

TEST_F(LockFolderTest, IsNotOneThatSomebodyElseCanWrite) {
  root_is_on(kNfs);
  std::filesystem::create_directory(dir_.path() / "run");
  ::chmod((dir_.path() / "run").c_str(), 0777);
  const LockFolder folder = find(dir_.path() / "run");
  EXPECT_EQ(folder.path.parent_path().parent_path(), dir_.path() / "persistent");
  EXPECT_EQ(folder.refused, 1U);
}

}  // namespace
}  // namespace kiln::cache
