#include "cache/index.h"

#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "cache/owned_range.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/sample_object.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::SampleObject;

class IndexTest : public testing::Test {
 protected:
  IndexTest() {
    for (int i = 0; i < 8; ++i) {
      SampleObject object(i, std::string(static_cast<std::size_t>(100 + i), 'p'));
      object->metadata.arch = i % 2 == 0 ? "9.0a" : "8.0";
      object->metadata.template_name = i < 4 ? "softmax" : "rope";
      EXPECT_EQ(sample_.store.publish(*object).outcome, Published::kStored);
    }
  }
  std::vector<Entry> walk() {
    std::vector<Entry> entries;
    for (unsigned folder = 0; folder < kFolderCount; ++folder) {
      const std::vector<Digest> keys = sample_.store.list_keys(folder).value();
      for (const Digest& key : keys)
        entries.push_back(sample_.store.describe(key).value().value());
    }
    return entries;
  }
  void expect_same(const ListQuery& query) {
    EXPECT_EQ(index_.list(query).value(), apply(query, walk()));
  }
  void sql(const char* text) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(sample_.layout.index().c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, text, nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }

  const test::TempDir dir_;
  test::SampleStore sample_{dir_.path() / "root"};
  LockFolder locks_{dir_.path() / "locks", {}};
  Index index_{sample_.layout, real_file_system(), sample_.store, locks_,
               sample_.counters};
};

TEST_F(IndexTest, AnswersAsAWalkOverTheObjectsWould) {
  for (const SortBy sort : {SortBy::kCreated, SortBy::kUsed, SortBy::kSize,
                            SortBy::kTemplate, SortBy::kArch}) {
    expect_same({.sort = sort});
    expect_same({.sort = sort, .archs = {"9.0a"}, .limit = 3});
    expect_same({.sort = sort, .archs = {"9.0a", "8.0"}, .templates = {"rope"}});
    expect_same({.sort = sort, .templates = {"none"}});
  }
  expect_same({.unused_since_ns = 0});
  expect_same({.unused_since_ns = std::int64_t{1} << 62U});
}

TEST_F(IndexTest, SeesWhatOthersPublishedAndRemoved) {
  EXPECT_EQ(index_.list({}).value().size(), 8U);
  SampleObject object(100);
  std::ignore = sample_.store.publish(*object);
  std::ignore = sample_.store.remove(SampleObject(0).key());
  expect_same({});
  EXPECT_EQ(index_.totals().value().entries, 8U);
  fs::remove_all(dir_.path() / "root" / "objects");
  EXPECT_TRUE(index_.list({}).value().empty());
  EXPECT_EQ(index_.totals().value().bytes, 0U);
}

TEST_F(IndexTest, AWrittenBatchIsThereWithoutReadingAFolder) {
  Entry entry = walk().front();
  entry.template_name = "from the batch";
  ASSERT_TRUE(index_.list({}));
  ASSERT_TRUE(index_.write({.published = {entry}, .used = {{entry.key, 12345}}}));
  const auto listed = index_.list({.templates = {"from the batch"}}).value();
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].last_used_ns, 12345);
  EXPECT_EQ(index_.totals().value().entries, 8U) << "an update is no second entry";
}

TEST_F(IndexTest, AnObjectWithoutTemplateAndParametersIsNoFault) {
  SampleObject object(100);
  object->metadata.template_name.clear();
  object->metadata.params.clear();
  object->metadata.toolchain.clear();
  std::ignore = sample_.store.publish(*object);
  ASSERT_TRUE(index_.list({}));
  ASSERT_TRUE(index_.write({.published = {}, .used = {{object.key(), 12345}}}));
  Index another(sample_.layout, real_file_system(), sample_.store, locks_,
                sample_.counters);
  EXPECT_EQ(another.list({}).value().size(), 9U);
  const auto unused = another.list({.unused_since_ns = 12346}).value();
  ASSERT_EQ(unused.size(), 1U) << "it was built anew";
  EXPECT_EQ(unused[0].key, object.key());
  EXPECT_EQ(sample_.counters.get(Counter::kIndexFailed), 0U);
}

TEST_F(IndexTest, TotalsAreThoseOfTheObjects) {
  ASSERT_TRUE(index_.refresh({}));
  std::uint64_t bytes = 0;
  for (const Entry& entry : walk()) bytes += entry.size_bytes;
  EXPECT_EQ(index_.totals().value().bytes, bytes);
}

TEST_F(IndexTest, DeletedWhileOpenItIsBuiltAgain) {
  ASSERT_TRUE(index_.list({}));
  fs::remove(sample_.layout.index());
  expect_same({});
  EXPECT_TRUE(fs::exists(sample_.layout.index()));
}

TEST_F(IndexTest, BesideItNothingIsRemovedWhereNothingLies) {
  ASSERT_TRUE(index_.totals());
  test::FaultyFileSystem files;
  int removals = 0;
  files.before = [&](std::string_view call, int) {
    removals += call == "unlink" ? 1 : 0;  // by then it may be another's journal
    return 0;
  };
  Index other{sample_.layout, files, sample_.store, locks_, sample_.counters};
  EXPECT_TRUE(other.totals());
  EXPECT_EQ(removals, 0);
}

TEST_F(IndexTest, GarbageIsReplaced) {
  std::ofstream(sample_.layout.index()) << std::string(10'000, 'x');
  expect_same({});
  EXPECT_EQ(sample_.counters.get(Counter::kIndexRebuilt), 1U);
}

TEST_F(IndexTest, AnotherVersionAndAnotherApplicationAreReplaced) {
  ASSERT_TRUE(index_.list({}));
  for (const char* change :
       {"PRAGMA user_version = 99", "PRAGMA application_id = 1",
        // What the first version was.
        "CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL);"
        "PRAGMA user_version = 1"}) {
    sql(change);
    Index other(sample_.layout, real_file_system(), sample_.store, locks_,
                sample_.counters);
    EXPECT_EQ(other.list({}).value().size(), 8U);
  }
  EXPECT_EQ(sample_.counters.get(Counter::kIndexRebuilt), 3U);
}

// Nothing is synced: a power loss may have kept the note that a folder was read, and
// not what was read there.
TEST_F(IndexTest, OneOfAnotherBootIsReplacedOnce) {
  ASSERT_TRUE(index_.list({}));
  sql("UPDATE boot SET id = 'another'; DELETE FROM entries");
  for (int i = 0; i < 2; ++i) {
    Index other(sample_.layout, real_file_system(), sample_.store, locks_,
                sample_.counters);
    EXPECT_EQ(other.list({}).value().size(), 8U);
  }
  EXPECT_EQ(sample_.counters.get(Counter::kIndexRebuilt), 1U);
}

TEST_F(IndexTest, MissingTablesAndImpossibleRowsAreRebuilt) {
  for (const char* change :
       {"DROP TABLE entries", "DROP TABLE totals", "UPDATE entries SET kind = 77",
        "UPDATE entries SET key = x'00' WHERE key = (SELECT key FROM entries LIMIT 1)",
        "INSERT INTO folders VALUES(9999, 1)"}) {
    SCOPED_TRACE(change);
    ASSERT_TRUE(index_.list({}));
    sql(change);
    expect_same({});
    EXPECT_EQ(index_.totals().value().entries, 8U);
  }
}

TEST_F(IndexTest, WhileAnotherRebuildsItSaysSoAndDoesNotWait) {
  const auto turn = OwnedRange::try_own({&real_file_system(), locks_.path / "index", 0},
                                        {}, std::chrono::seconds(1));
  ASSERT_TRUE(turn && *turn);
  EXPECT_EQ(index_.list({}).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(sample_.counters.get(Counter::kIndexFailed), 1U);
}

TEST_F(IndexTest, AForkedChildLeavesItAlone) {
  ASSERT_TRUE(index_.list({}));
  const pid_t child = ::fork();
  if (child == 0)
    ::_exit(index_.list({}).has_value() ? 1 : 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  expect_same({});
}

TEST_F(IndexTest, HoldsNoDescriptorBetweenCalls) {
  // The host may close it, and SQLite would write to the host's next file.
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_files();
  ASSERT_TRUE(index_.write({.published = {walk().front()}}));
  ASSERT_TRUE(index_.list({}));
  ASSERT_TRUE(index_.totals());
  EXPECT_EQ(open_files(), before);
}

TEST_F(IndexTest, NoTemporariesAreLeft) {
  ASSERT_TRUE(index_.list({}));
  for (const auto& entry : fs::directory_iterator(sample_.layout.root()))
    EXPECT_FALSE(Layout::is_temporary(entry.path().filename().native()));
}

}  // namespace
}  // namespace kiln::cache
