// Row 13 of the faults, for the index. SQLite does its own I/O, never synced here, so
// that its crash states are contents: any mixture of old and new pages, torn files, a
// journal that is there or not, beside objects that are newer or older than it.

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache.h"
#include "tests/fault/power_loss/crash_checker.h"
#include "tests/fault/power_loss/crash_states.h"
#include "tests/fault/power_loss/disk.h"
#include "tests/support/fault_length.h"
#include "tests/support/test.h"
#include "util/proc_file.h"
#include "util/read_file.h"

namespace kiln::cache {
namespace {

using test::CrashReport;
using test::Disk;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSector = 512;
constexpr std::chrono::milliseconds kIndexPatience{20'000};
constexpr const char* kIndex = "index.sqlite";
constexpr const char* kJournal = "index.sqlite-journal";

std::ptrdiff_t at(std::size_t offset) {
  return static_cast<std::ptrdiff_t>(offset);
}

Bytes first(const Bytes& bytes, std::size_t size) {
  return {bytes.begin(), bytes.begin() + at(size)};
}

/// The same index, as the boot before this one would have made it.
Bytes of_another_boot(Bytes index) {
  std::string id = read_proc_file("/proc/sys/kernel/random/boot_id").value_or("");
  const ByteView digits = as_bytes(id);
  const auto found =
      std::search(index.begin(), index.end(), digits.begin(), digits.end());
  EXPECT_NE(found, index.end());
  std::ranges::replace(id, id.front(), id.front() == '0' ? '1' : '0');
  if (found != index.end())
    std::ranges::copy(digits, found);
  return index;
}

/// `stale` with those pages of `fresh` of which there is a bit in `pages`.
Bytes mixed(const Bytes& stale, const Bytes& fresh, std::uint64_t pages) {
  Bytes bytes = stale;
  bytes.resize(std::max(stale.size(), fresh.size()));
  for (std::size_t page = 0; page * kPage < fresh.size(); ++page) {
    if ((pages >> page & 1U) != 0)
      std::copy_n(fresh.begin() + at(page * kPage), kPage,
                  bytes.begin() + at(page * kPage));
  }
  return bytes;
}

/// A root at two times: the index of each knows every object of its own time.
class PowerLossIndex : public testing::Test {
 protected:
  PowerLossIndex() {
    use([&](Cache& cache) {
      for (const int number : {0, 1, 2, 3}) publish(cache, number);
    });
    old_ = settled(std::chrono::hours(2));
    use([&](Cache& cache) {
      ASSERT_TRUE(cache.remove(table_.object(0).key()));
      for (const int number : {4, 5}) publish(cache, number);
    });
    new_ = settled(std::chrono::hours(1));
    fs::remove_all(root_);
    old_index_ = of_another_boot(old_.find(kIndex)->bytes);
    new_index_ = of_another_boot(new_.find(kIndex)->bytes);
  }
  void TearDown() override {
    test::print(testing::UnitTest::GetInstance()->current_test_info()->name(), report_);
    EXPECT_GT(report_.injected, 0U);
    EXPECT_EQ(report_.wrong, 0U);
    EXPECT_EQ(report_.failed, 0U);
    EXPECT_THAT(report_.complaints, IsEmpty());
  }

  void use(const std::function<void(Cache&)>& body) const {
    CacheOptions options;
    options.root = root_;
    const auto cache = Cache::open(options);
    ASSERT_EQ(cache->mode(), Mode::kReadWrite);
    body(*cache);
    cache->flush(kIndexPatience);
  }
  void publish(Cache& cache, int number) const {
    ASSERT_EQ(cache.publish(table_.object(number)).outcome, Published::kStored);
  }
  /// The root with an index that has read every folder, none of which will be read
  /// again because it has just changed.
  [[nodiscard]] Disk settled(std::chrono::hours age) const {
    const auto then = fs::file_time_type::clock::now() - age;
    for (const auto& entry : fs::recursive_directory_iterator(root_ / "objects"))
      fs::last_write_time(entry.path(), then);
    use([](Cache& cache) { ASSERT_TRUE(cache.list({})); });
    return Disk::read(root_);
  }

  static Disk with(const Disk& objects, Bytes index) {
    Disk disk = objects;
    disk.add(kIndex, std::move(index));
    return disk;
  }
  static Disk with(const Disk& objects, Bytes index, Bytes journal) {
    Disk disk = with(objects, std::move(index));
    disk.add(kJournal, std::move(journal));
    return disk;
  }
  /// The transaction that makes the old index the new one, as SQLite leaves it.
  void update_index();

  void check(const Disk& disk);
  void expect_right(Cache& cache, const Disk& disk);
  void expect(bool good, const char* what);

  const test::ReferenceTable table_{6};
  const test::ScratchFolder scratch_;
  const fs::path root_ = scratch_.path() / "root";
  Disk old_;
  Disk new_;
  Bytes old_index_;
  Bytes new_index_;
  Bytes journal_;  // in the middle of the transaction that leads from one to the other
  bool failed_ = false;
  CrashReport report_;
};

void PowerLossIndex::expect(bool good, const char* what) {
  if (good)
    return;
  failed_ = true;
  if (report_.complaints.size() < 8)
    report_.complaints.push_back(fmt::format("state {}: {}", report_.injected, what));
}

void PowerLossIndex::check(const Disk& disk) {
  disk.write(root_);
  failed_ = false;
  std::uint64_t rebuilt = 0;
  for (int opened = 0; opened < 2; ++opened) {
    use([&](Cache& cache) {
      expect_right(cache, disk);
      rebuilt += cache.counters().get(Counter::kIndexRebuilt);
    });
  }
  expect(rebuilt <= 1, "the index was built more than once");
  fs::remove_all(root_);
  ++report_.injected;
  report_.failed += failed_ ? 1 : 0;
}

void PowerLossIndex::expect_right(Cache& cache, const Disk& disk) {
  std::set<Digest> there;
  std::uint64_t bytes = 0;
  for (int number = 0; number < table_.count(); ++number) {
    const StoredObject& object = table_.object(number);
    const auto found = cache.find(object.key());
    const bool named = disk.find(table_.path(number)) != nullptr;
    expect(found.has_value() == named, "a hit depends on the index");
    if (found && as_text(found->file()) != as_text(object.file()))
      ++report_.wrong;
    if (!named)
      continue;
    there.insert(object.key());
    bytes += object.file().size();
  }
  std::set<Digest> listed;
  const auto entries = cache.list({});
  expect(entries.has_value(), "a listing fails");
  for (const Entry& entry : entries.value_or(std::vector<Entry>{}))
    listed.insert(entry.key);
  expect(listed == there, "the listing is not what is there");
  const auto stats = cache.stats();
  expect(stats && stats->totals.entries == there.size() && stats->totals.bytes == bytes,
         "the totals are not those of what is there");
}

void PowerLossIndex::update_index() {
  const fs::path folder = scratch_.path() / "sqlite";
  Disk disk;
  disk.add(kIndex, old_index_);
  disk.add("new.sqlite", new_index_);
  disk.write(folder);
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open((folder / kIndex).c_str(), &database), SQLITE_OK);
  const auto execute = [&](const std::string& sql) {
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
  };
  execute("PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = OFF");
  execute("ATTACH '" + (folder / "new.sqlite").native() + "' AS new; BEGIN IMMEDIATE");
  execute("DELETE FROM entries WHERE key NOT IN (SELECT key FROM new.entries)");
  execute(
      "INSERT INTO entries SELECT * FROM new.entries"
      " WHERE key NOT IN (SELECT key FROM main.entries)");
  execute("REPLACE INTO folders SELECT * FROM new.folders");
  journal_ = Disk::read(folder).find(kJournal)->bytes;
  execute("COMMIT");
  sqlite3_close(database);
  new_index_ = Disk::read(folder).find(kIndex)->bytes;
  EXPECT_GT(journal_.size(), 2 * kPage);
}

TEST_F(PowerLossIndex, fault_13_ACutIndexChangesNoAnswer) {
  for (std::size_t size = 0; size <= old_index_.size(); size += kSector)
    check(with(old_, first(old_index_, size)));
}

TEST_F(PowerLossIndex, fault_13_PagesThatWereNeverWrittenChangeNoAnswer) {
  for (std::size_t from = 0; from < old_index_.size(); from += kPage) {
    Bytes hole = old_index_;
    std::fill_n(hole.begin() + at(from), kPage, std::byte{0});
    check(with(old_, hole));
    Bytes tail = old_index_;
    std::fill(tail.begin() + at(from), tail.end(), std::byte{0});
    check(with(old_, tail));
  }
}

TEST_F(PowerLossIndex, fault_13_AnIndexOfAnotherTimeThanTheObjectsChangesNoAnswer) {
  check(with(new_, old_index_));
  check(with(old_, new_index_));
}

TEST_F(PowerLossIndex, fault_13_AMixtureOfOldAndNewPagesChangesNoAnswer) {
  update_index();
  std::mt19937_64 random(13);
  for (std::size_t i = 0; i < std::size_t{128} * test::fault_length(); ++i)
    check(with(i % 2 == 0 ? new_ : old_, mixed(old_index_, new_index_, random())));
}

TEST_F(PowerLossIndex, fault_13_ATornJournalChangesNoAnswer) {
  update_index();
  std::mt19937_64 random(13);
  for (std::size_t size = 0; size <= journal_.size(); size += kSector) {
    const Bytes torn = first(journal_, size);
    Bytes zeros = torn;
    zeros.resize(journal_.size());
    check(with(old_, old_index_, torn));
    for (std::size_t i = 0; i < test::fault_length(); ++i) {
      const Bytes index = mixed(old_index_, new_index_, random());
      check(with(new_, index, torn));
      check(with(new_, index, zeros));
    }
  }
}

TEST_F(PowerLossIndex, fault_13_AHalfBuiltIndexBesideItChangesNoAnswer) {
  Disk without = old_;
  without.names.erase(kIndex);
  without.prune();
  for (std::size_t size = 0; size <= old_index_.size(); size += kPage) {
    for (const Disk& disk : {without, with(old_, old_index_)}) {
      Disk left = disk;
      left.add(Layout::temporary_in("").substr(1), first(old_index_, size));
      check(left);
    }
  }
}

}  // namespace
}  // namespace kiln::cache
