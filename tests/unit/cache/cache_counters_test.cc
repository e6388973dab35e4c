// The counts of all processes that used a root, as Cache::stats() tells them.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <limits>

#include "cache/cache.h"
#include "cache/counter_file.h"
#include "tests/support/child_process.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/sample_object.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/unique_fd.h"

namespace kiln::cache {
namespace {

using test::SampleObject;

class CacheCountersTest : public testing::Test {
 protected:
  CacheCountersTest() {
    const auto cache = open();
    EXPECT_EQ(cache->publish(*sample_).outcome, Published::kStored);
  }
  std::unique_ptr<Cache> open() {
    CacheOptions options;
    options.root = root_;
    options.persistent_dir = dir_.path() / "persistent";
    options.counters_dir = counters_dir_;
    options.file_system = &files_;
    return Cache::open(options);
  }
  /// A process that finds the object, and ends.
  void hit() { EXPECT_TRUE(open()->find(sample_.key())); }
  /// As written down.
  CounterFile::Counts counts() {
    const Layout layout(root_);
    const TrustPolicy trust = TrustPolicy::of_this_process({});
    return CounterFile(layout.counters(), real_file_system(), trust).read(5s).value();
  }
  std::uint64_t stat(const std::string& name) {
    return open()->stats().value().counters[name];
  }
  void be_on_the_network() {
    files_.on_type = [this](std::string_view path) -> std::int64_t {
      return path.starts_with(root_.native()) ? 0x6969 : 0;
    };
  }
  void remove_index() {
    for (const char* suffix : {"", "-journal", "-wal", "-shm"})
      fs::remove_all(index_.native() + suffix);
  }

  const test::TempDir dir_;
  const fs::path root_ = dir_.path() / "root";
  const fs::path index_ = Layout(root_).index();
  const fs::path counters_ = Layout(root_).counters();
  fs::path counters_dir_;
  test::FaultyFileSystem files_;
  SampleObject sample_{1};
};

TEST_F(CacheCountersTest, AProcessWithHitsAloneCountsThemAndOpensNoIndex) {
  remove_index();
  hit();
  hit();
  EXPECT_FALSE(fs::exists(index_));
  EXPECT_EQ(counts().at("hits"), 2U);
}

TEST_F(CacheCountersTest, AFlushOfCountsAloneOpensNoIndex) {
  remove_index();
  const auto cache = open();
  std::ignore = cache->find(SampleObject(2).key());
  cache->flush(5s);
  EXPECT_EQ(counts().at("misses"), 1U);
  EXPECT_FALSE(fs::exists(index_));
}

TEST_F(CacheCountersTest, CountsSurviveTheLossOfTheIndex) {
  hit();
  remove_index();
  EXPECT_EQ(stat("hits"), 1U);
  EXPECT_EQ(stat("published"), 1U);
  std::ofstream(index_) << std::string(10'000, 'x');
  EXPECT_EQ(stat("hits"), 1U);
  EXPECT_EQ(stat("index_rebuilt"), 1U);
}

TEST_F(CacheCountersTest, CountsSurviveATrimAndTheRemovalOfEveryObject) {
  hit();
  ASSERT_TRUE(open()->trim({.limit_bytes = 0, .minimum_age = 0s}));
  ASSERT_TRUE(open()->remove(sample_.key()));
  const Stats stats = open()->stats().value();
  EXPECT_EQ(stats.totals.entries, 0U);
  EXPECT_EQ(stats.counters.at("hits"), 1U);
  EXPECT_EQ(stats.counters.at("published"), 1U);
}

TEST_F(CacheCountersTest, WithoutAnIndexStatsHaveTheCountsOfAllProcesses) {
  hit();
  remove_index();
  fs::create_directories(index_ / "in the way");
  hit();
  const Stats stats = open()->stats().value();
  EXPECT_EQ(stats.totals.entries, 1U) << "by asking the objects";
  EXPECT_EQ(stats.counters.at("hits"), 2U);
}

TEST_F(CacheCountersTest, AnIndexThatFailsAtTheEndIsCounted) {
  remove_index();
  fs::create_directories(index_ / "in the way");
  SampleObject other(2);
  std::ignore = open()->publish(*other);
  EXPECT_GE(counts()["index_failed"], 1U);
  EXPECT_EQ(counts()["published"], 2U);
}

TEST_F(CacheCountersTest, WhatATrimAtTheEndEvictedIsCounted) {
  const auto old = fs::file_time_type::clock::now() - 2h;
  fs::last_write_time(Layout(root_).object(sample_.key()), old);
  {
    CacheOptions small;
    small.root = root_;
    small.limit_bytes = 1500;
    const auto cache = Cache::open(small);
    SampleObject other(2);
    std::ignore = cache->publish(*other);
    cache->flush(10s);
  }
  EXPECT_EQ(counts()["evicted"], 1U);
}

TEST_F(CacheCountersTest, WhatCannotBeWrittenIsAddedByTheNextBatch) {
  fs::remove(counters_);
  fs::create_directories(counters_ / "in the way");
  {
    const auto cache = open();
    std::ignore = cache->find(sample_.key());
    cache->flush(5s);
    std::ignore = cache->find(sample_.key());
    EXPECT_EQ(cache->stats().value().counters.at("hits"), 2U) << "our own at least";
    fs::remove_all(counters_);
    std::ignore = cache->find(sample_.key());
  }
  EXPECT_EQ(counts().at("hits"), 3U);
}

TEST_F(CacheCountersTest, WhateverLiesInPlaceOfTheFileFailsNoCaller) {
  const std::vector<std::function<void()>> places{
      [&] { fs::create_directories(counters_ / "in the way"); },
      [&] { EXPECT_EQ(::mkfifo(counters_.c_str(), 0600), 0); },
      [&] { fs::create_symlink("/dev/full", counters_); },
      [&] { fs::create_symlink(counters_, counters_); },
      [&] { std::ofstream(counters_) << std::string(100'000, '\0'); },
      [&] {
        std::ofstream(counters_) << "kiln counters 1\nhits 7\n";
        ::chmod(counters_.c_str(), 0666);
      },
  };
  for (const auto& put : places) {
    fs::remove_all(counters_);
    put();
    const auto started = std::chrono::steady_clock::now();
    {
      const auto cache = open();
      EXPECT_TRUE(cache->find(sample_.key()));
      const auto stats = cache->stats();
      ASSERT_TRUE(stats) << stats.error().message;
      EXPECT_EQ(stats->counters.at("hits"), 1U);
      EXPECT_EQ(stats->totals.entries, 1U);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - started, 5s);
  }
}

TEST_F(CacheCountersTest, AFullDiskCostsTheCountsAlone) {
  hit();
  const auto before = counts();
  files_.fail("pwrite", ENOSPC);
  {
    const auto cache = open();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(cache->find(sample_.key()));
    const Stats stats = cache->stats().value();
    EXPECT_EQ(stats.totals.entries, 1U);
    EXPECT_EQ(stats.counters.at("hits"), 3U) << "its own at least";
    EXPECT_EQ(stats.counters.at("published"), 1U);
  }
  EXPECT_EQ(counts(), before);
}

TEST_F(CacheCountersTest, AHolderThatStandsStillDelaysTheEndOnlyShortly) {
  const UniqueFd holder(::open(counters_.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(real_file_system().set_lock(holder.get(), RangeLock::kExclusive, 0, 1), 0);
  const auto started = std::chrono::steady_clock::now();
  hit();
  EXPECT_LT(std::chrono::steady_clock::now() - started, 2s);
}

TEST_F(CacheCountersTest, ARootThatIsReadOnlyOrOnTheNetworkHasThemInAFolderOfTheNode) {
  fs::remove(counters_);
  files_.before = [asked = 0](std::string_view call, int) mutable {
    return call == "writable" && ++asked <= 2 ? -EROFS : 0;  // objects and locks
  };
  hit();
  files_.before = [](auto, int) { return 0; };
  be_on_the_network();
  hit();
  const auto cache = open();
  EXPECT_TRUE(cache->find(sample_.key()));
  EXPECT_EQ(cache->stats().value().counters.at("hits"), 3U);
  EXPECT_THAT(cache->counts_at().value().native(),
              testing::StartsWith((dir_.path() / "persistent/kiln-").native()));
  EXPECT_FALSE(fs::exists(counters_));
}

TEST_F(CacheCountersTest, TheFolderOfTheNodeIsMadeWithTheFirstCount) {
  counters_dir_ = dir_.path() / "node";
  be_on_the_network();
  open()->stats().value();
  EXPECT_FALSE(fs::exists(counters_dir_)) << "nothing was counted";
  hit();
  EXPECT_TRUE(fs::exists(open()->counts_at().value()));
}

TEST_F(CacheCountersTest, RootSumsWhatEachUserCountedAndNothingThatAnotherWrote) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "only root can give files away";
  counters_dir_ = dir_.path() / "node";
  fs::create_directories(counters_dir_);
  ::chmod(dir_.path().c_str(), 0755);
  ::chmod(counters_dir_.c_str(), 01777);
  be_on_the_network();
  hit();
  const fs::path own = open()->counts_at().value();
  const std::string id = own.parent_path().filename();
  const auto put = [&](const std::string& name, uid_t owner, std::string_view count) {
    const fs::path folder = counters_dir_ / name / id;
    fs::create_directories(folder);
    std::ofstream(folder / "counters") << "kiln counters 1\nhits " << count << '\n';
    for (const fs::path& each : {folder / "counters", folder, folder.parent_path()}) {
      ::chmod(each.c_str(), each == folder / "counters" ? 0600 : 0700);
      EXPECT_EQ(::chown(each.c_str(), owner, owner), 0);
    }
    return folder / "counters";
  };
  put("kiln-4711", 4711, "10");
  EXPECT_EQ(stat("hits"), 11U);
  put("kiln-4712", 4711, "100");   // of somebody else
  put("kiln-4713x", 4711, "100");  // of no user
  put("kiln-04711", 4711, "100");  // of a user who has one
  const auto open_to_all = put("kiln-4714", 4714, "100");
  ::chmod(open_to_all.c_str(), 0666);
  const auto link = put("kiln-4715", 4715, "100");
  fs::rename(link, link.parent_path() / "behind");
  fs::create_symlink("behind", link);
  ASSERT_EQ(::lchown(link.c_str(), 4715, 4715), 0);
  const auto pipe = put("kiln-4716", 4716, "100");
  fs::remove(pipe);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(::chown(pipe.c_str(), 4716, 4716), 0);
  EXPECT_EQ(stat("hits"), 11U);
  put("kiln-4717", 4717, "18446744073709551615");
  EXPECT_EQ(stat("hits"), std::numeric_limits<std::uint64_t>::max());
}

TEST_F(CacheCountersTest, AForkedChildWritesNoneAndReadsAll) {
  hit();
  auto cache = open();
  std::ignore = cache->find(sample_.key());
  test::ChildProcess child([&] {
    std::ignore = cache->find(sample_.key());
    const bool reads = cache->stats().value().counters.at("published") == 1;
    cache.reset();
    return reads ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(counts().at("hits"), 1U);
  cache.reset();
  EXPECT_EQ(counts().at("hits"), 2U);
}

}  // namespace
}  // namespace kiln::cache
