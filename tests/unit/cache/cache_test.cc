#include "cache/cache.h"

#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "cache/sqlite.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/is_error.h"
#include "tests/support/processes.h"
#include "tests/support/sample_object.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::SampleObject;

class CacheTest : public testing::Test {
 protected:
  CacheOptions options() {
    CacheOptions options;
    options.root = root_;
    options.persistent_dir = dir_.path() / "persistent";
    options.file_system = &files_;
    return options;
  }
  std::unique_ptr<Cache> open() { return Cache::open(options()); }
  void fail_on(std::string_view call, int err) {
    files_.before = [=](std::string_view now, int) { return now == call ? err : 0; };
  }
  /// The root is on a network file system.
  void have_no_index() {
    files_.on_type = [&](std::string_view path) -> std::int64_t {
      return path.starts_with(root_.native()) ? 0x6969 : 0;
    };
  }
  /// One after the other, each last used two hours ago.
  static void publish_old_objects(Cache& cache) {
    constexpr int kObjects = 20;
    const auto old = fs::file_time_type::clock::now() - 2h;
    for (int i = 0; i < kObjects; ++i) {
      SampleObject object(i);
      std::ignore = cache.publish(*object);
      fs::last_write_time(cache.layout().object(object.key()), old);
      cache.flush(10s);
    }
  }

  const test::TempDir dir_;
  const fs::path root_ = dir_.path() / "a" / "root";
  test::FaultyFileSystem files_;
  SampleObject sample_{1};
};

TEST_F(CacheTest, CreatesItsRootForTheUserAlone) {
  const auto cache = open();
  EXPECT_EQ(cache->mode(), Mode::kReadWrite);
  EXPECT_EQ(fs::status(root_).permissions(), fs::perms::owner_all);
}

TEST_F(CacheTest, PublishesFindsListsAndCounts) {
  const auto cache = open();
  EXPECT_FALSE(cache->find(sample_.key()));
  EXPECT_EQ(cache->publish(*sample_).outcome, Published::kStored);
  EXPECT_TRUE(cache->find(sample_.key()));
  const auto listed = cache->list({}).value();
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].key, sample_.key());
  EXPECT_EQ(listed[0].params.at(0).value, "bf16");
  const Stats stats = cache->stats().value();
  EXPECT_EQ(stats.totals.entries, 1U);
  EXPECT_EQ(stats.counters.at("hits"), 1U);
  EXPECT_EQ(stats.counters.at("misses"), 1U);
  EXPECT_EQ(stats.counters.at("published"), 1U);
}

TEST_F(CacheTest, CountersAddUpOverProcessesThatHaveEnded) {
  std::ignore = open()->find(sample_.key());
  std::ignore = open()->find(sample_.key());
  EXPECT_EQ(open()->stats().value().counters.at("misses"), 2U);
}

TEST_F(CacheTest, AnUntrustedPlaceIsNotUsedAndTheComponentIsNamed) {
  fs::create_directories(root_.parent_path());
  ::chmod(root_.parent_path().c_str(), 0777);
  const auto cache = open();
  EXPECT_EQ(cache->mode(), Mode::kOff);
  EXPECT_THAT(cache->mode_reason(), testing::HasSubstr(root_.parent_path().native()));
  EXPECT_FALSE(fs::exists(root_));
}

TEST_F(CacheTest, NothingIsMadeInARootThatIsRefused) {
  fs::create_directories(root_);
  ::chmod(root_.c_str(), 01777);  // as /tmp: what is in it could be trusted
  const auto cache = open();
  EXPECT_EQ(cache->mode(), Mode::kOff);
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(CacheTest, AbsentAndNotCreatableItIsOffAndBreaksNothing) {
  fail_on("mkdir", -EROFS);
  const auto cache = open();
  EXPECT_EQ(cache->mode(), Mode::kOff);
  EXPECT_FALSE(cache->find(sample_.key()));
  const PublishResult result = cache->publish(*sample_);
  EXPECT_EQ(result.outcome, Published::kNotStored);
  EXPECT_EQ(result.error->code, ErrorCode::kUnavailable);
  EXPECT_TRUE(cache->list({}).value().empty());
  EXPECT_EQ(cache->lock({.key = sample_.key()}).outcome, LockOutcome::kBypassed);
  EXPECT_EQ(cache->trim({}).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(cache->resolve("abcdef").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(cache->verify({}).value().checked, 0U);
}

TEST_F(CacheTest, ARootThatMayNotBeEnteredIsOff) {
  fs::create_directories(root_);
  // The root of a trusted user with mode 0700: it can be looked at, what is in it not.
  bool inside = false;
  files_.before = [&inside](std::string_view call, int) {
    inside = inside || call == "mkdir";
    return call == "mkdir" || (call == "stat" && inside) ? -EACCES : 0;
  };
  const auto cache = open();
  EXPECT_EQ(cache->mode(), Mode::kOff);
  EXPECT_THAT(cache->mode_reason(), testing::HasSubstr("Permission denied"));
}

TEST_F(CacheTest, ARelativeOrEmptyRootIsOff) {
  CacheOptions relative;
  relative.root = "cache";
  EXPECT_EQ(Cache::open(relative)->mode(), Mode::kOff);
  EXPECT_EQ(Cache::open({})->mode(), Mode::kOff);
}

TEST_F(CacheTest, AReadOnlyRootServesHitsAndNothingIsWritten) {
  std::ignore = open()->publish(*sample_);
  const auto before = dir_.files();
  fail_on("writable", -EROFS);
  {
    const auto cache = open();
    EXPECT_EQ(cache->mode(), Mode::kReadOnly);
    EXPECT_TRUE(cache->find(sample_.key()));
    SampleObject other(2);
    EXPECT_EQ(cache->publish(*other).outcome, Published::kNotStored);
    EXPECT_EQ(cache->list({}).value().size(), 1U);
    EXPECT_FALSE(cache->remove(sample_.key()));
  }
  EXPECT_EQ(dir_.files(), before);
}

TEST_F(CacheTest, AFullDiskAtOpenIsNoReasonToGiveUp) {
  fs::create_directories(root_);
  ::chmod(root_.parent_path().c_str(), 0755);
  ::chmod(root_.c_str(), 0700);
  fail_on("mkdir", -ENOSPC);
  const auto cache = open();
  EXPECT_EQ(cache->mode(), Mode::kReadWrite);
  EXPECT_EQ(cache->publish(*sample_).outcome, Published::kNotStored);
  files_.before = [](auto, int) { return 0; };
  EXPECT_EQ(cache->publish(*sample_).outcome, Published::kStored);
}

TEST_F(CacheTest, ANetworkRootHasNoIndexAndItsLocksAreElsewhere) {
  have_no_index();
  const auto cache = open();
  EXPECT_FALSE(cache->has_index());
  EXPECT_THAT(cache->lock_folder().path.native(),
              testing::StartsWith((dir_.path() / "persistent").native()));
  std::ignore = cache->publish(*sample_);
  EXPECT_EQ(cache->list({}).value().size(), 1U);
  EXPECT_EQ(cache->stats().value().totals.entries, 1U);
  EXPECT_FALSE(fs::exists(cache->layout().index()));
}

TEST_F(CacheTest, ARootBehindALinkHasAnIndex) {
  fs::create_directories(root_);
  fs::permissions(root_, fs::perms::owner_all);
  CacheOptions behind = options();
  behind.root = dir_.path() / "link";
  fs::create_directory_symlink(root_, behind.root);
  const auto cache = Cache::open(behind);
  EXPECT_EQ(cache->publish(*sample_).outcome, Published::kStored);
  EXPECT_EQ(cache->list({}).value().size(), 1U);
  EXPECT_TRUE(fs::exists(root_ / "index.sqlite"));
  EXPECT_EQ(cache->counters().get(Counter::kIndexFailed), 0U);
}

TEST_F(CacheTest, WithAnIndexThatCannotBeHadItTrimsAllTheSame) {
  CacheOptions small = options();
  small.limit_bytes = 4000;
  fs::create_directories(root_ / "index.sqlite" / "somebody's");
  fs::permissions(root_, fs::perms::owner_all);
  const auto cache = Cache::open(small);
  publish_old_objects(*cache);
  EXPECT_GE(cache->counters().get(Counter::kIndexFailed), 1U);
  EXPECT_LE(cache->stats().value().totals.bytes, 4000U);
}

TEST_F(CacheTest, TotalsByKindAreTheSameWithAndWithoutAnIndex) {
  SampleObject plan{2, "a plan"};
  plan->kind = Kind::kPlan;
  SampleObject other{3, "a longer plan"};
  other->kind = Kind::kPlan;
  for (const bool has_index : {true, false}) {
    if (!has_index)
      have_no_index();
    const auto cache = open();
    EXPECT_EQ(cache->has_index(), has_index);
    EXPECT_EQ(cache->totals_by_kind().value().empty(), has_index);  // the first time
    for (SampleObject* object : {&sample_, &plan, &other})
      std::ignore = cache->publish(**object);
    const KindTotals kinds = cache->totals_by_kind().value();
    ASSERT_EQ(kinds.size(), 2U);
    EXPECT_EQ(kinds.at(Kind::kCubin).entries, 1U);
    EXPECT_EQ(kinds.at(Kind::kPlan).entries, 2U);
    EXPECT_EQ(kinds.at(Kind::kCubin).bytes + kinds.at(Kind::kPlan).bytes,
              cache->stats().value().totals.bytes);
  }
}

TEST_F(CacheTest, WithoutIndexAndStampItTrimsByItselfAllTheSame) {
  CacheOptions small = options();
  small.limit_bytes = 4000;
  fs::create_directories(root_ / "index.sqlite" / "somebody's");
  fs::create_directories(root_ / "trim.stamp");
  fs::permissions(root_, fs::perms::owner_all);
  const auto cache = Cache::open(small);
  publish_old_objects(*cache);
  EXPECT_LE(cache->stats().value().totals.bytes, 4000U);
}

TEST_F(CacheTest, AStampThatOthersCanWriteIsCountedThoughItIsFresh) {
  have_no_index();
  const auto cache = open();
  std::ofstream(root_ / "trim.stamp") << "a stranger's";
  ::chmod((root_ / "trim.stamp").c_str(), 0666);
  std::ignore = cache->publish(*sample_);
  cache->flush(10s);
  EXPECT_GE(cache->counters().get(Counter::kUntrusted), 1U);
}

TEST_F(CacheTest, ATrimForTheQuarantineTellsOtherProcessesOfItsWalk) {
  have_no_index();
  const auto cache = open();
  std::ignore = cache->publish(*sample_);
  cache->flush(10s);
  const std::string bad = cache->layout().object(sample_.key());
  fs::permissions(bad, fs::perms::owner_all);
  fs::resize_file(bad, 100);
  EXPECT_FALSE(cache->find(sample_.key()));
  fs::remove(root_ / "trim.stamp");
  EXPECT_EQ(cache->publish(*sample_).outcome, Published::kStored);
  cache->flush(10s);
  EXPECT_TRUE(fs::exists(root_ / "trim.stamp"));
}

TEST_F(CacheTest, OverItsLimitItTrimsByItself) {
  CacheOptions small = options();
  small.limit_bytes = 4000;
  const auto cache = Cache::open(small);
  publish_old_objects(*cache);
  EXPECT_LE(cache->stats().value().totals.bytes, 4000U);
  EXPECT_GE(cache->counters().get(Counter::kEvicted), 1U);
}

TEST_F(CacheTest, OneCollectorAtATime) {
  const auto cache = open();
  const auto other = OwnedRange::try_own(
      {&real_file_system(), cache->lock_folder().path / "trim", 0}, {}, 1s);
  ASSERT_TRUE(other && *other);
  EXPECT_EQ(cache->trim({}).error().code, ErrorCode::kUnavailable);
}

TEST_F(CacheTest, ATrimWaitsForTheTrimOfItsOwnThread) {
  constexpr int kSlow = 20;  // listings, so that the walk takes a tenth of a second
  std::atomic<int> listings = 0;
  have_no_index();  // so the first publish is followed by a walk
  const auto cache = open();
  files_.before = [&](std::string_view call, int) {
    if (call == "list" && ++listings <= kSlow)
      std::this_thread::sleep_for(5ms);
    return 0;
  };
  std::ignore = cache->publish(*sample_);
  ASSERT_TRUE(test::eventually(10s, [&] { return listings > 0; }));
  const auto trimmed = cache->trim({.limit_bytes = 1U << 30U});
  EXPECT_TRUE(trimmed) << trimmed.error().message;
}

TEST_F(CacheTest, APrefixOfSixDigitsNamesAKeyIfItIsTheOnlyOne) {
  const auto cache = open();
  std::ignore = cache->publish(*sample_);
  std::string hex = sample_.key().hex();
  EXPECT_EQ(cache->resolve(hex.substr(0, 6)).value(), sample_.key());
  std::ranges::transform(hex, hex.begin(), ::toupper);
  EXPECT_EQ(cache->resolve(hex).value(), sample_.key());
  EXPECT_EQ(cache->resolve(hex.substr(0, 5)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(cache->resolve("no hex!").error().code, ErrorCode::kInvalidArgument);
  hex[5] = hex[5] == '0' ? '1' : '0';
  EXPECT_EQ(cache->resolve(hex).error().code, ErrorCode::kNotFound);
}

TEST_F(CacheTest, VerifyReportsEachKindAndQuarantinesOnRequest) {
  const auto cache = open();
  SampleObject corrupt(2);
  SampleObject untrusted(3);
  for (SampleObject* object : {&sample_, &corrupt, &untrusted})
    std::ignore = cache->publish(**object);
  const std::string bad = cache->layout().object(corrupt.key());
  fs::permissions(bad, fs::perms::owner_all);
  fs::resize_file(bad, 100);
  ::chmod(cache->layout().object(untrusted.key()).c_str(), 0666);
  int told = 0;
  const auto seen =
      cache->verify({.on_problem = [&](const ObjectProblem&) { ++told; }}).value();
  EXPECT_EQ(seen.checked, 3U);
  EXPECT_EQ(seen.corrupt, 1U);
  EXPECT_EQ(seen.untrusted, 1U);
  EXPECT_EQ(seen.quarantined, 0U);
  EXPECT_EQ(told, 2);
  EXPECT_EQ(cache->verify({.quarantine = Quarantine::kYes}).value().quarantined, 1U);
  EXPECT_EQ(cache->verify({}).value().corrupt, 0U);
}

TEST_F(CacheTest, TheQuarantineKeepsItsLimitsThoughTheCacheIsNotFull) {
  CacheOptions roomy = options();
  roomy.limit_bytes = 1U << 20U;
  const auto cache = Cache::open(roomy);
  const fs::path quarantine = cache->layout().quarantine();
  fs::create_directories(quarantine);
  const fs::path old = quarantine / (SampleObject(2).key().hex() + "-1-size");
  std::ofstream(old) << std::string(roomy.limit_bytes / 10 + 1, 'x');
  std::ignore = cache->publish(*SampleObject(3));
  cache->flush(5s);
  EXPECT_TRUE(fs::exists(old)) << "nothing was set aside by this process";
  std::ignore = cache->publish(*sample_);
  const std::string bad = cache->layout().object(sample_.key());
  fs::permissions(bad, fs::perms::owner_all);
  fs::resize_file(bad, 100);
  EXPECT_FALSE(cache->find(sample_.key()));
  EXPECT_EQ(cache->publish(*sample_).outcome, Published::kStored);
  cache->flush(5s);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(cache->find(sample_.key()));
}

TEST_F(CacheTest, AWalkAsksTheObjectsAndNotAnIndexThatLies) {
  const auto cache = open();
  SampleObject other(2);
  other->metadata.arch = "8.0";
  std::ignore = cache->publish(*sample_);
  std::ignore = cache->publish(*other);
  cache->flush(5s);  // nothing is to be written after what follows
  ASSERT_EQ(cache->list({}).value().size(), 2U);
  {
    auto index = Database::open(cache->layout().index(), Database::Open::kExisting, 1s);
    ASSERT_TRUE(index);
    ASSERT_TRUE(index->execute("UPDATE entries SET arch='8.0', used=0"));
  }
  const ListQuery of_arch{.archs = {"8.0"}};
  EXPECT_EQ(cache->list(of_arch).value().size(), 2U) << "the index does not lie";
  const auto walked = cache->walk(of_arch, Damaged::kLeaveOut).value();
  ASSERT_EQ(walked.size(), 1U);
  EXPECT_EQ(walked.front().key, other.key());
  const ListQuery unused{.unused_since_ns = other->metadata.created_ns};
  EXPECT_TRUE(cache->walk(unused, Damaged::kLeaveOut).value().empty());
}

TEST_F(CacheTest, AWalkFindsWhatCannotBeDescribedIfAsked) {
  const auto cache = open();
  std::ignore = cache->publish(*sample_);
  const std::string path = cache->layout().object(sample_.key());
  ::chmod(path.c_str(), 0644);
  std::ofstream(path, std::ios::in | std::ios::out) << "no magic";
  EXPECT_TRUE(cache->walk({}, Damaged::kLeaveOut).value().empty());
  const auto walked = cache->walk({}, Damaged::kInclude).value();
  ASSERT_EQ(walked.size(), 1U);
  EXPECT_EQ(walked.front().key, sample_.key());
  EXPECT_EQ(walked.front().size_bytes, fs::file_size(path));
}

TEST_F(CacheTest, LookingAtADamagedObjectSaysWhatIsWrongAndLeavesIt) {
  const auto cache = open();
  std::ignore = cache->publish(*sample_);
  const std::string path = cache->layout().object(sample_.key());
  ::chmod(path.c_str(), 0644);
  std::ofstream(path, std::ios::app) << "more";
  EXPECT_THAT(cache->inspect(sample_.key()),
              test::IsError(ErrorCode::kCorrupt, testing::HasSubstr("size")));
  EXPECT_TRUE(fs::exists(path));
  EXPECT_EQ(cache->verify({}).value().corrupt, 1U);
}

TEST_F(CacheTest, AnUnreadableObjectIsAMiss) {
  const auto cache = open();
  std::ignore = cache->publish(*sample_);
  fail_on("pread", -EIO);
  EXPECT_FALSE(cache->find(sample_.key()));
  EXPECT_EQ(cache->counters().get(Counter::kUnreadable), 1U);
}

}  // namespace
}  // namespace kiln::cache
