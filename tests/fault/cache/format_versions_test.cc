// Row 35: programs of other format versions use the same root. Neither sees, moves or
// deletes what is the other's.

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "cache/cache.h"
#include "tests/support/child_process.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/program.h"
#include "tests/support/test.h"
#include "util/unique_fd.h"

namespace kiln::cache {
namespace {

using test::ChildProcess;
using test::ReferenceObject;

constexpr int kObjects = 8;
// Other versions, and what is no version's name though it looks like one.
constexpr std::array kUntouchable{"v0", "v2", "v999", "v00", "v-0", "V0"};

class FormatVersionsTest : public test::CampaignTest {
 protected:
  FormatVersionsTest() {
    const auto cache = Cache::open(options());
    for (int i = 0; i < kObjects; ++i)
      EXPECT_EQ(cache->publish(*ReferenceObject(i)).outcome, Published::kStored);
    for (const char* version : kUntouchable) {
      for (int i = 0; i < kObjects; ++i) write_other(version, i);
    }
  }

  [[nodiscard]] CacheOptions options() const {
    CacheOptions options;
    options.root = kiln_.cache_dir();
    return options;
  }

  [[nodiscard]] fs::path other(const char* version, int number) const {
    const std::string hex = ReferenceObject(number).key().hex();
    return kiln_.cache_dir() / "objects" / version / hex.substr(0, 2) / hex.substr(2);
  }

  /// An object under the same key, and a temporary, both a month old: what a trim of
  /// their own version would take first. Never read since they were written.
  void write_other(const char* version, int number) const {
    const fs::path object = other(version, number);
    const fs::path temporary = object.parent_path() / (".tmp-" + std::string(32, 'a'));
    fs::create_directories(object.parent_path());
    for (const fs::path& path : {object, temporary}) {
      std::ofstream(path) << "KILNOBJ\n of another format, " << number;
      const std::time_t month_ago = std::time(nullptr) - std::time_t{30} * 24 * 3600;
      const std::array<timespec, 2> times{{{month_ago - 60, 0}, {month_ago, 0}}};
      ::utimensat(AT_FDCWD, path.c_str(), times.data(), 0);
    }
  }

  using Look = std::map<std::string, std::string>;

  /// What lies in a version's folder, with bytes, times of the last change and, of
  /// files, times of the last reading.
  [[nodiscard]] Look look(const char* version) const {
    Look found;
    const fs::path folder = kiln_.cache_dir() / "objects" / version;
    if (!fs::exists(folder))
      return found;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      std::ostringstream text;
      text << entry.last_write_time().time_since_epoch().count() << ' ';
      if (entry.is_regular_file()) {
        struct stat info {};
        EXPECT_EQ(::lstat(entry.path().c_str(), &info), 0);
        text << info.st_atim.tv_sec << '.' << info.st_atim.tv_nsec << ' '
             << text_of(entry.path());
      }
      found[entry.path()] = text.str();
    }
    return found;
  }
  [[nodiscard]] std::map<std::string, Look> untouchable() const {
    std::map<std::string, Look> found;
    for (const char* version : kUntouchable) found[version] = look(version);
    return found;
  }

  /// Of a file, without a mark that it was read.
  static std::string text_of(const fs::path& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOATIME));
    std::string text(1024, '\0');
    const ssize_t n = ::read(fd.get(), text.data(), text.size());
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
  }

  test::KilnProgram kiln_;
};

TEST_F(FormatVersionsTest, fault_35_ObjectsOfOtherVersionsAreNeitherSeenNorTouched) {
  const auto before = untouchable();
  const auto expect_untouched = [&](const std::string& after) {
    campaign_.injected(static_cast<int>(kUntouchable.size()) * kObjects);
    if (untouchable() != before)
      campaign_.wrong("the others' objects are not as they were after " + after);
  };
  {
    const auto cache = Cache::open(options());
    campaign_.check_hits(*cache, kObjects, "beside other versions");
    EXPECT_TRUE(cache->remove(ReferenceObject(0).key()));
    EXPECT_FALSE(cache->find(ReferenceObject(0).key())) << "the other's was found";
    EXPECT_EQ(cache->publish(*ReferenceObject(0)).outcome, Published::kStored);
    EXPECT_EQ(cache->list({}).value().size(), std::size_t{kObjects});
    EXPECT_EQ(cache->walk({}, Damaged::kInclude).value().size(), std::size_t{kObjects});
    EXPECT_EQ(cache->stats().value().totals.entries, std::uint64_t{kObjects});
    EXPECT_EQ(cache->verify({.quarantine = Quarantine::kYes}).value().checked,
              std::uint64_t{kObjects});
  }
  expect_untouched("finding, publishing, listing and verifying");
  EXPECT_EQ(kiln_.json_of({"ls"})["entries"].size(), std::size_t{kObjects});
  // To the program these are no cubins; it looks at ours alone all the same.
  EXPECT_EQ(kiln_.json_of({"verify"}, 1)["checked"], kObjects);
  EXPECT_EQ(kiln_.json_of({"stats"})["entries"], kObjects);
  kiln_.run({"doctor"});
  const std::string key = ReferenceObject(0).key().hex();
  kiln_.run({"show", key});
  EXPECT_EQ(
      kiln_.run({"clear", "--template", "softmax", "--arch", "7.5", "--yes"}).status,
      0);
  EXPECT_EQ(kiln_.json_of({"clear", "--older-than", "7d", "--yes"})["removed"], 0);
  EXPECT_EQ(kiln_.json_of({"clear", "--all", "--dry-run"})["removed"], kObjects);
  EXPECT_EQ(kiln_.json_of({"trim", "--max-size", "1B", "--dry-run"})["removed"],
            kObjects);
  EXPECT_EQ(kiln_.json_of({"clear", key})["removed"], 1);
  expect_untouched("all that looks, and a clear of others");
  EXPECT_EQ(kiln_.json_of({"trim", "--max-size", "1B"})["removed"], kObjects - 1);
  expect_untouched("trim");
  EXPECT_EQ(Cache::open(options())->publish(*ReferenceObject(1)).outcome,
            Published::kStored);
  EXPECT_EQ(kiln_.json_of({"clear", "--all", "--yes"})["removed"], 1);
  expect_untouched("clear");
}

TEST_F(FormatVersionsTest, fault_35_TheTrimAfterAPublishLeavesOtherVersionsAlone) {
  const auto before = untouchable();
  CacheOptions small = options();
  // Too small for ours, so that each publish trims.
  small.limit_bytes = Cache::open(options())->stats().value().totals.bytes / 2;
  const auto cache = Cache::open(small);
  for (int i = 0; i < kObjects; ++i) {
    const fs::path ours = cache->layout().object(ReferenceObject(i).key());
    fs::last_write_time(ours, fs::file_time_type::clock::now() - 24h * 60);
  }
  campaign_.injected(static_cast<int>(kUntouchable.size()) * kObjects);
  EXPECT_TRUE(cache->remove(ReferenceObject(0).key()));
  EXPECT_EQ(cache->publish(*ReferenceObject(0)).outcome, Published::kStored);
  cache->flush(10s);
  EXPECT_GT(cache->counters().get(Counter::kEvicted), 0U);
  if (untouchable() != before)
    campaign_.wrong("the others' objects are not as they were");
}

TEST_F(FormatVersionsTest, fault_35_AnObjectOfAnotherVersionInOurFolderIsQuarantined) {
  const auto cache = Cache::open(options());
  for (int i = 0; i < kObjects; ++i) {
    const fs::path ours = cache->layout().object(ReferenceObject(i).key());
    fs::permissions(ours, fs::perms::owner_write, fs::perm_options::add);
    std::fstream(ours).seekp(8) << static_cast<char>(i == 0 ? 0 : i + 1);
    campaign_.injected();
  }
  campaign_.check_hits(*cache, kObjects, "with another version's number in its header");
  EXPECT_EQ(cache->counters().get(Counter::kQuarantined), std::uint64_t{kObjects});
  for (int i = 0; i < kObjects; ++i) {
    EXPECT_EQ(cache->publish(*ReferenceObject(i)).outcome, Published::kStored);
    EXPECT_TRUE(cache->find(ReferenceObject(i).key()));
  }
}

TEST_F(FormatVersionsTest, fault_35_AWriterOfAnotherVersionTakesOnlyTheIndexInTurns) {
  const int rounds = 40 * static_cast<int>(test::fault_length());
  // Publishes its own objects, and puts an index of its version in place of ours.
  ChildProcess newer([&] {
    const fs::path index = kiln_.cache_dir() / "index.sqlite";
    for (int round = 0; round < rounds; ++round) {
      write_other("v2", round % kObjects);
      const fs::path fresh = kiln_.cache_dir() / ".tmp-newer";
      sqlite3* database = nullptr;
      ::sqlite3_open(fresh.c_str(), &database);
      ::sqlite3_exec(database,
                     "PRAGMA application_id = 1263094862; PRAGMA user_version = 4;"
                     "CREATE TABLE other(key BLOB)",
                     nullptr, nullptr, nullptr);
      ::sqlite3_close(database);
      fs::rename(fresh, index);
      std::this_thread::sleep_for(2ms);
    }
    return 0;
  });
  const auto cache = Cache::open(options());
  for (int round = 0; round < rounds; ++round) {
    campaign_.injected();
    const ReferenceObject mine(round % kObjects);
    EXPECT_TRUE(cache->remove(mine.key()));
    if (cache->publish(*ReferenceObject(round % kObjects)).outcome !=
        Published::kStored)
      campaign_.wrong("nothing can be published");
    campaign_.check_hits(*cache, kObjects, "beside a newer writer");
    if (cache->list({}).value().size() != std::size_t{kObjects})
      campaign_.wrong("the list is not that of our objects");
  }
  EXPECT_EQ(newer.wait(), 0);
  for (const auto& [version, found] : untouchable())
    EXPECT_EQ(found.size(), std::size_t{3} * kObjects) << version << ", with folders";
  EXPECT_EQ(Cache::open(options())->list({}).value().size(), std::size_t{kObjects});
}

}  // namespace
}  // namespace kiln::cache
