// Row 35: programs of other format versions use the same root. Neither sees, moves or
// deletes what is the other's.

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "cache/cache.h"
#include "tests/support/child_process.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/program.h"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using test::Campaign;
using test::ChildProcess;
using test::ReferenceObject;

constexpr int kObjects = 8;
constexpr std::array kOthers{"v0", "v2", "v999"};

class FormatVersionsTest : public testing::Test {
 protected:
  FormatVersionsTest() {
    const auto cache = Cache::open(options());
    for (int i = 0; i < kObjects; ++i)
      EXPECT_EQ(cache->publish(*ReferenceObject(i)).outcome, Published::kStored);
    for (const char* version : kOthers) {
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
  /// their own version would take first.
  void write_other(const char* version, int number) const {
    const fs::path object = other(version, number);
    const fs::path temporary = object.parent_path() / (".tmp-" + std::string(32, 'a'));
    fs::create_directories(object.parent_path());
    for (const fs::path& path : {object, temporary}) {
      std::ofstream(path) << "KILNOBJ\n of another format, " << number;
      fs::last_write_time(path, fs::file_time_type::clock::now() - 24h * 30);
    }
  }

  /// What lies in the others' folders, with times and bytes.
  [[nodiscard]] std::map<std::string, std::string> others() const {
    std::map<std::string, std::string> found;
    for (const char* version : kOthers) {
      const fs::path folder = kiln_.cache_dir() / "objects" / version;
      for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        std::ostringstream text;
        text << entry.last_write_time().time_since_epoch().count() << ' ';
        if (entry.is_regular_file())
          text << std::ifstream(entry.path()).rdbuf();
        found[entry.path()] = text.str();
      }
    }
    return found;
  }

  test::KilnProgram kiln_;
};

TEST_F(FormatVersionsTest, fault_35_ObjectsOfOtherVersionsAreNeitherSeenNorTouched) {
  Campaign campaign;
  const auto before = others();
  const auto expect_untouched = [&](const std::string& after) {
    campaign.injected(static_cast<int>(kOthers.size()) * kObjects);
    if (others() != before)
      campaign.wrong("the others' objects are not as they were after " + after);
  };
  {
    const auto cache = Cache::open(options());
    campaign.check_hits(*cache, kObjects, "beside other versions");
    EXPECT_TRUE(cache->remove(ReferenceObject(0).key()));
    EXPECT_FALSE(cache->find(ReferenceObject(0).key())) << "the other's was found";
    EXPECT_EQ(cache->publish(*ReferenceObject(0)).outcome, Published::kStored);
    EXPECT_EQ(cache->list({}).value().size(), std::size_t{kObjects});
    EXPECT_EQ(cache->stats().value().totals.entries, std::uint64_t{kObjects});
    EXPECT_EQ(cache->verify({.quarantine = Quarantine::kYes}).value().checked,
              std::uint64_t{kObjects});
  }
  expect_untouched("finding, publishing, listing and verifying");
  EXPECT_EQ(kiln_.json_of({"ls"})["entries"].size(), std::size_t{kObjects});
  // To the program these are no cubins; it looks at ours alone all the same.
  EXPECT_EQ(kiln_.json_of({"verify"}, 1)["checked"], kObjects);
  expect_untouched("ls and verify");
  EXPECT_EQ(kiln_.json_of({"trim", "--max-size", "1"})["removed"], kObjects);
  expect_untouched("trim");
  EXPECT_EQ(Cache::open(options())->publish(*ReferenceObject(1)).outcome,
            Published::kStored);
  EXPECT_EQ(kiln_.json_of({"clear", "--all", "--yes"})["removed"], 1);
  expect_untouched("clear");
  EXPECT_TRUE(kiln_.json_of({"ls"})["entries"].empty());
}

TEST_F(FormatVersionsTest, fault_35_AnObjectOfAnotherVersionInOurFolderIsQuarantined) {
  Campaign campaign;
  const auto cache = Cache::open(options());
  for (int i = 0; i < kObjects; ++i) {
    const fs::path ours = cache->layout().object(ReferenceObject(i).key());
    fs::permissions(ours, fs::perms::owner_write, fs::perm_options::add);
    std::fstream(ours).seekp(8) << static_cast<char>(i == 0 ? 0 : i + 1);
    campaign.injected();
  }
  campaign.check_hits(*cache, kObjects, "with another version's number in its header");
  EXPECT_EQ(cache->counters().get(Counter::kQuarantined), std::uint64_t{kObjects});
  for (int i = 0; i < kObjects; ++i) {
    EXPECT_EQ(cache->publish(*ReferenceObject(i)).outcome, Published::kStored);
    EXPECT_TRUE(cache->find(ReferenceObject(i).key()));
  }
}

TEST_F(FormatVersionsTest, fault_35_AWriterOfAnotherVersionTakesOnlyTheIndexInTurns) {
  Campaign campaign;
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
    campaign.injected();
    const ReferenceObject mine(round % kObjects);
    EXPECT_TRUE(cache->remove(mine.key()));
    if (cache->publish(*ReferenceObject(round % kObjects)).outcome !=
        Published::kStored)
      campaign.wrong("nothing can be published");
    campaign.check_hits(*cache, kObjects, "beside a newer writer");
    if (cache->list({}).value().size() != std::size_t{kObjects})
      campaign.wrong("the list is not that of our objects");
  }
  EXPECT_EQ(newer.wait(), 0);
  EXPECT_EQ(others().size(), kOthers.size() * 3 * kObjects) << "with the folders";
  EXPECT_EQ(Cache::open(options())->list({}).value().size(), std::size_t{kObjects});
}

}  // namespace
}  // namespace kiln::cache
