// Row 17: an index that is no database, has flipped bytes, is of another version, or is
// deleted while many processes have it open. Hits are unaffected, and it is rebuilt
// once.

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/fault/corruption/corruption.h"
#include "tests/fault/corruption/index_lies.h"
#include "tests/support/child_process.h"
#include "util/little_endian.h"
#include "util/read_file.h"

namespace kiln::test {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kDatabaseHeader = 100;
constexpr std::size_t kPageHeader = 12;
constexpr int kProcesses = 16;
constexpr std::uint64_t kLargestIndex = 1U << 24U;

/// What the processes tell.
struct Shared {
  std::atomic<std::uint64_t> rebuilt;
  std::atomic<std::uint64_t> wrong;
};

class CorruptIndex : public Corruption {
 protected:
  void SetUp() override {
    Corruption::SetUp();
    if (IsSkipped() || HasFatalFailure())
      return;
    ASSERT_EQ(cache_->list({}).value().size(), objects().all().size());
    cache_.reset();
    sound_ = read_file(index_, kLargestIndex).value().value();
    ASSERT_EQ(sound_.size() % kPage, 0U);
    reopen();
  }

  /// A new file under the index's name, as after a crash or a copy.
  void replace(ByteView bytes) const {
    const fs::path other = root_ / "other";
    std::ofstream(other, std::ios::binary) << as_text(bytes);
    fs::rename(other, index_);
  }

  /// A cache that meets this index has every hit, an answer to every question, and
  /// needs no second rebuild.
  void expect_harmless(ByteView bytes, const char* what, std::size_t where) {
    cache_.reset();
    for (const char* suffix : {"-journal", "-wal", "-shm"})
      fs::remove(index_.native() + suffix);
    replace(bytes);
    reopen();
    expect_all_right(what, where);
    const auto before = cache_->counters().get(cache::Counter::kIndexRebuilt);
    EXPECT_TRUE(cache_->list({})) << what << where;
    EXPECT_TRUE(cache_->list({.sort = cache::SortBy::kSize, .limit = 3}));
    EXPECT_TRUE(cache_->stats()) << what << where;
    EXPECT_LE(cache_->counters().get(cache::Counter::kIndexRebuilt) - before, 1U)
        << what << where;
    expect_all_right(what, where);
  }

  void flip(std::size_t at, int mask) {
    Bytes damaged = sound_;
    damaged[at] ^= static_cast<std::byte>(mask);
    expect_harmless(damaged, "flipped byte", at);
  }

  /// In a process that has the index open when the harm is done.
  [[nodiscard]] int use_it(const Signal& opened, const Signal& harmed) const {
    const auto cache = cache::Cache::open(options_of(root_));
    if (!cache->list({}))
      return 1;
    opened.raise();
    harmed.wait();
    for (int round = 0; round < 10; ++round) {
      for (const RealObject* object : objects().all())
        shared_->wrong += ask(*cache, *object) == Answer::kRight ? 0U : 1U;
      if (const auto listed = cache->list({});
          !listed || listed->size() != objects().all().size())
        return 2;
    }
    shared_->rebuilt += cache->counters().get(cache::Counter::kIndexRebuilt);
    return 0;
  }

  void expect_one_rebuild(const char* what, const std::function<void()>& harm) {
    SCOPED_TRACE(what);
    cache_.reset();
    shared_->rebuilt = 0;
    const Signal opened;
    const Signal harmed;
    std::vector<ChildProcess> processes;
    for (int i = 0; i < kProcesses; ++i)
      processes.emplace_back([&] { return use_it(opened, harmed); });
    for (int i = 0; i < kProcesses; ++i) opened.wait();
    harm();
    for (int i = 0; i < kProcesses; ++i) harmed.raise();
    for (ChildProcess& process : processes) EXPECT_EQ(process.wait(), 0);
    EXPECT_LE(shared_->rebuilt, 1U);
    count(kProcesses, shared_->wrong);
    reopen();
    EXPECT_EQ(cache_->list({}).value().size(), objects().all().size());
    expect_all_right(what);
  }

  const fs::path index_ = root_ / "index.sqlite";
  Bytes sound_;
  const SharedWithChildren<Shared> shared_;
};

TEST_F(CorruptIndex, fault_17_WhatIsNoDatabaseCostsNoHit) {
  const auto garbage = Bytes(3 * kPage, std::byte{0xA5});
  expect_harmless({}, "an empty file", 0);
  expect_harmless(as_bytes("SQLite format 3"), "a word", 0);
  expect_harmless(garbage, "garbage", 0);
  Bytes headed(sound_.begin(), sound_.begin() + kDatabaseHeader);
  append(headed, garbage);
  expect_harmless(headed, "garbage behind a right header", 0);
  expect_harmless(objects().sm_80.file, "an object", 0);
  for (std::size_t size = 0; size < sound_.size(); size += 512)
    expect_harmless(ByteView(sound_).first(size + 100), "cut to", size + 100);
  for (std::size_t page = 0; page < sound_.size(); page += kPage) {
    Bytes holed = sound_;
    std::fill_n(holed.begin() + static_cast<std::ptrdiff_t>(page), kPage, std::byte{});
    expect_harmless(holed, "without the page at", page);
  }
}

TEST_F(CorruptIndex, fault_17_FlippedBytesInEveryPageHeaderCostNoHit) {
  for (std::size_t at = 0; at < kDatabaseHeader; ++at) flip(at, 0xFF);
  for (std::size_t page = 0; page < sound_.size(); page += kPage) {
    const std::size_t begin = page == 0 ? kDatabaseHeader : page;
    for (std::size_t i = 0; i < kPageHeader; ++i) {
      for (const int mask : {0xFF, 0x01}) {
        if (fault_length() > 1 || (mask == 0x01) == (i % 2 == 1))
          flip(begin + i, mask);
      }
    }
  }
  const std::size_t step = std::max<std::size_t>(1, 997 / fault_length());
  for (std::size_t at = 0; at < sound_.size(); at += step) flip(at, 0x10);
}

TEST_F(CorruptIndex, fault_17_ThingsThatAreNoFileCostNoHit) {
  cache_.reset();
  fs::remove(index_);
  fs::create_directory(index_);
  reopen();
  expect_all_right("a folder");
  EXPECT_EQ(cache_->list({}).value().size(), objects().all().size());
  cache_.reset();
  fs::remove(index_);
  fs::create_symlink(temp_.path() / "elsewhere", index_);
  reopen();
  expect_all_right("a link to nowhere");
  EXPECT_EQ(cache_->list({}).value().size(), objects().all().size());
  EXPECT_FALSE(fs::exists(temp_.path() / "elsewhere"));
}

TEST_F(CorruptIndex, fault_17_OtherVersionsAndSchemasCostNoHit) {
  for (const char* sql :
       {"PRAGMA user_version = 1", "PRAGMA user_version = 3",
        "PRAGMA user_version = -1", "PRAGMA application_id = 0", "DROP TABLE entries",
        "DROP TABLE folders", "DROP TABLE totals", "DROP TRIGGER entry_in",
        "DROP INDEX by_size", "ALTER TABLE entries RENAME COLUMN used TO last_used",
        "ALTER TABLE entries ADD COLUMN more",
        "DROP TABLE entries; CREATE VIEW entries AS SELECT 1 AS key",
        "PRAGMA encoding; VACUUM",
        "CREATE TRIGGER t AFTER INSERT ON entries BEGIN SELECT raise(FAIL, 'no'); END;"
        "DELETE FROM entries; DELETE FROM folders"}) {
    cache_.reset();
    replace(sound_);
    ASSERT_EQ(change_rows(index_, sql), "") << sql;
    expect_harmless(read_file(index_, kLargestIndex).value().value(), sql, 0);
  }
}

TEST_F(CorruptIndex, fault_17_HarmedWhileManyHaveItOpenItIsRebuiltOnce) {
  const auto garbage = Bytes(5 * kPage, std::byte{0xA5});
  for (unsigned round = 0; round < fault_length(); ++round) {
    expect_one_rebuild("deleted", [&] { fs::remove(index_); });
    expect_one_rebuild("garbage in its place", [&] { replace(garbage); });
    expect_one_rebuild("cut", [&] { fs::resize_file(index_, kPage + 100); });
    expect_one_rebuild("overwritten", [&] {
      std::ofstream(index_, std::ios::binary) << as_text(garbage);
    });
    expect_one_rebuild("another version", [&] {
      EXPECT_EQ(change_rows(index_, "PRAGMA user_version = 9"), "");
    });
  }
}

}  // namespace
}  // namespace kiln::test
