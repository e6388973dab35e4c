// Row 13 of the faults: the power goes at any moment of a publish, an eviction, a
// quarantine or an update of the counters. No hit is wrong in any state that this can
// leave, and no call fails. crash_states.h says which states those are.

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>

#include "cache/cache.h"
#include "tests/fault/power_loss/crash_checker.h"
#include "tests/fault/power_loss/crash_states.h"
#include "tests/fault/power_loss/recording_file_system.h"
#include "tests/support/fault_length.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/sample_object.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::CrashReport;
using test::SampleStore;

constexpr std::size_t kCombinations = 256;
constexpr std::chrono::milliseconds kCounterPatience{20'000};

class PowerLoss : public testing::Test {
 protected:
  PowerLoss() { fs::create_directory(root_); }

  /// Puts objects there before the log begins, last used some hours ago.
  void have(std::initializer_list<int> numbers) {
    const SampleStore sample(root_);
    for (const int number : numbers) {
      ASSERT_EQ(sample.store.publish(table_.object(number)).outcome,
                Published::kStored);
      age(table_.path(number), std::chrono::hours(24 - number));
    }
  }
  void age(const fs::path& name, std::chrono::seconds age) const {
    fs::last_write_time(root_ / name, fs::file_time_type::clock::now() - age);
  }
  /// A file that is no object, of an object's name.
  void damage(int number) {
    have({number});
    const fs::path path = root_ / table_.path(number);
    fs::permissions(path, fs::perms::owner_all);
    fs::resize_file(path, fs::file_size(path) / 2);
    damaged_.insert(number);
  }

  /// Records from now on what goes through files().
  void record(test::Syncs syncs = test::Syncs::kDone,
              FileSystem& below = real_file_system()) {
    files_ = std::make_unique<test::RecordingFileSystem>(root_, syncs, below);
  }
  test::RecordingFileSystem& files() { return *files_; }
  void publish(const ObjectStore& store, int number) {
    const auto outcome = store.publish(table_.object(number)).outcome;
    ASSERT_TRUE(outcome == Published::kStored || outcome == Published::kAlreadyThere);
    files().acknowledge(number);
  }

  /// Cuts the power everywhere in what was recorded.
  CrashReport crash(std::size_t combinations = kCombinations) {
    test::CrashChecker checker(table_, damaged_);
    const std::size_t states = test::for_each_crash_state(
        files().before(), files().log(), combinations * test::fault_length(),
        [&](const test::CrashState& state) { checker.check(state); });
    EXPECT_EQ(states, checker.report().injected);
    EXPECT_GT(states, files().log().size());
    total_ += checker.report();
    return checker.report();
  }
  void TearDown() override {
    test::print(testing::UnitTest::GetInstance()->current_test_info()->name(), total_);
  }
  /// What Kiln promises: an object is whole or absent, and nothing else goes wrong.
  static void expect_absent_or_whole(const CrashReport& report) {
    EXPECT_EQ(report.wrong, 0U);
    EXPECT_EQ(report.failed, 0U);
    EXPECT_EQ(report.torn, 0U);
    EXPECT_THAT(report.complaints, IsEmpty());
  }

  const test::ReferenceTable table_{5};
  const test::ScratchFolder scratch_;
  const fs::path root_ = scratch_.path() / "recorded";
  std::set<int> damaged_;
  CrashReport total_;
  std::unique_ptr<test::RecordingFileSystem> files_;
};

// The name of an object is not promised to last: no folder is synced, so that it may be
// lost until the file system writes it back by itself. What has its name is whole.
TEST_F(PowerLoss, fault_13_NoCrashStateOfAPublishGivesAWrongHit) {
  record();
  const SampleStore sample(root_, files());
  publish(sample.store, 0);
  publish(sample.store, 1);
  const CrashReport report = crash();
  expect_absent_or_whole(report);
  EXPECT_GT(report.lost, 0U) << "the model loses names";
}

TEST_F(PowerLoss, fault_13_NoCrashStateOfAPublishBesideOthersGivesAWrongHit) {
  have({0, 1, 2});
  record();
  const SampleStore sample(root_, files());
  publish(sample.store, 1);  // again: the other's stays
  publish(sample.store, 3);
  expect_absent_or_whole(crash());
}

TEST_F(PowerLoss, fault_13_NoCrashStateOfAPublishWithoutHardLinksGivesAWrongHit) {
  for (const bool renames_over : {false, true}) {
    test::FaultyFileSystem linkless;
    linkless.before = [&](std::string_view call, int) {
      return call == "link" || (renames_over && call == "rename_no_replace") ? -EPERM
                                                                             : 0;
    };
    fs::remove_all(root_);
    fs::create_directory(root_);
    have({0});
    record(test::Syncs::kDone, linkless);
    const SampleStore sample(root_, files());
    publish(sample.store, 1);
    expect_absent_or_whole(crash());
  }
}

TEST_F(PowerLoss, fault_13_NoCrashStateOfAnEvictionGivesAWrongHit) {
  have({0, 1, 2, 3, 4});
  const std::string orphan =
      Layout::temporary_in((root_ / table_.path(2)).parent_path().native());
  fs::copy_file(root_ / table_.path(2), orphan);
  age(orphan, std::chrono::hours(2));
  record();
  SampleStore sample(root_, files());
  ASSERT_TRUE(sample.store.find(table_.object(4).key()).value());  // marks it as used
  TrimOptions options;
  options.limit_bytes = table_.object(3).file().size() * 3;
  const auto trimmed =
      cache::trim(sample.layout, files(), sample.store, sample.counters, options);
  ASSERT_TRUE(trimmed);
  EXPECT_GT(trimmed->removed, 1U);
  EXPECT_EQ(trimmed->orphans_swept, 1U);
  publish(sample.store, 0);
  expect_absent_or_whole(crash(kCombinations / 4));
}

TEST_F(PowerLoss, fault_13_NoCrashStateOfAQuarantineGivesAWrongHit) {
  have({0, 1});
  damage(2);
  record();
  const SampleStore sample(root_, files());
  EXPECT_EQ(sample.store.find(table_.object(2).key()).value(), std::nullopt);
  publish(sample.store, 2);
  expect_absent_or_whole(crash());
}

TEST_F(PowerLoss, fault_13_NoCrashStateOfAPublishOverADamagedObjectGivesAWrongHit) {
  damage(0);
  record();
  const SampleStore sample(root_, files());
  publish(sample.store, 0);  // link, quarantine, link
  expect_absent_or_whole(crash());
}

// The counters are never synced: any count may come back, and no fault.
TEST_F(PowerLoss, fault_13_NoCrashStateOfTheCountersGivesAFault) {
  have({0});
  const SampleStore sample(root_);
  CounterFile before(sample.layout.counters(), real_file_system(), sample.trust);
  CounterFile::Counts many;  // so that they fill several sectors
  for (int i = 0; i < 150; ++i) many["count_" + std::to_string(i)] = 99;
  for (const bool are_there : {false, true}) {
    if (are_there) {
      ASSERT_TRUE(before.add(many, kCounterPatience));
    }
    record();
    CounterFile counters(sample.layout.counters(), files(), sample.trust);
    ASSERT_TRUE(counters.add({{"hits", 1}, {"misses", 1}}, kCounterPatience));
    ASSERT_TRUE(counters.add({{"a_new_name", 1}, {"count_7", 1}}, kCounterPatience));
    expect_absent_or_whole(crash());
    fs::remove(sample.layout.counters());
  }
}

// A cache that is used for the first time: folders, locks, objects, index, counters.
TEST_F(PowerLoss, fault_13_NoCrashStateOfAFirstUseGivesAWrongHit) {
  record();
  {
    CacheOptions options;
    options.root = root_;
    options.file_system = &files();
    const auto cache = Cache::open(options);
    ASSERT_EQ(cache->publish(table_.object(0)).outcome, Published::kStored);
    files().acknowledge(0);
    cache->flush(kCounterPatience);
    ASSERT_TRUE(cache->list({}));
  }
  expect_absent_or_whole(crash(kCombinations / 32));
}

// That the checker sees what a missing sync does. Sync::kNone is for where a power loss
// costs nothing: even then it costs no wrong hit.
TEST_F(PowerLoss, fault_13_WithoutFdatasyncAnObjectCanBeTornAndIsAMiss) {
  record(test::Syncs::kDropped);
  const SampleStore sample(root_, files());
  publish(sample.store, 0);
  const CrashReport report = crash();
  EXPECT_GT(report.torn, 0U);
  EXPECT_EQ(report.wrong, 0U);
  EXPECT_EQ(report.failed, 0U);
}

TEST_F(PowerLoss, fault_13_ANameBeforeTheDataCanBeTornAndIsAMiss) {
  have({0});
  const std::string name = root_ / table_.path(1);
  fs::create_directory(fs::path(name).parent_path());
  record();
  const int fd = files().open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0444);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(write_all(files(), fd, table_.object(1).file()), 0);
  EXPECT_EQ(files().fdatasync(fd), 0);
  EXPECT_EQ(files().close(fd), 0);
  files().acknowledge(1);
  const CrashReport report = crash();
  EXPECT_GT(report.torn, 0U);
  EXPECT_EQ(report.wrong, 0U);
  EXPECT_EQ(report.failed, 0U);
}

TEST_F(PowerLoss, fault_13_ASyncedFolderLosesNoName) {
  const fs::path folder = (root_ / table_.path(0)).parent_path();
  fs::create_directories(folder);
  record();
  const SampleStore sample(root_, files());
  ASSERT_EQ(sample.store.publish(table_.object(0)).outcome, Published::kStored);
  const int fd = files().open(folder.c_str(), O_RDONLY | O_DIRECTORY, 0);
  EXPECT_EQ(files().fdatasync(fd), 0);
  EXPECT_EQ(files().close(fd), 0);
  files().acknowledge(0);
  const CrashReport report = crash();
  expect_absent_or_whole(report);
  EXPECT_EQ(report.lost, 0U);
}

}  // namespace
}  // namespace kiln::cache
