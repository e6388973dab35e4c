#include "cache/pack_identity.h"

#include <fmt/format.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "tests/support/sample_pack.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

namespace fs = std::filesystem;

PackHeader of_serial(std::uint64_t serial) {
  PackHeader header = test::sample_header();
  header.serial = serial;
  return header;
}

class PackIdentityTest : public testing::Test {
 protected:
  void remember(std::uint64_t serial, LastPack which = LastPack::kNewest) {
    ASSERT_TRUE(remember_taken(folder_, of_serial(serial), which));
  }
  /// 0: no pack is older than any.
  static std::uint64_t last(const OwnFolder& folder) {
    const auto taken = newer_taken(folder, of_serial(0), "job.kpack");
    return taken ? taken->serial : 0;
  }
  [[nodiscard]] std::uint64_t last() const { return last(folder_); }

  const test::TempDir dir_;
  const OwnFolder folder_{dir_.path() / "packs"};
};

TEST_F(PackIdentityTest, AnOlderPackThatEndsLastDoesNotTakeTheMemoryBack) {
  remember(9);
  remember(5);
  EXPECT_EQ(last(), 9U);
  remember(11);
  EXPECT_EQ(last(), 11U);
}

TEST_F(PackIdentityTest, AnOlderPackIsTheLastIfThatIsAskedFor) {
  remember(9);
  remember(5, LastPack::kThis);
  EXPECT_EQ(last(), 5U);
}

TEST_F(PackIdentityTest, OfManyRememberedAtOneMomentTheNewestStays) {
  constexpr std::uint64_t kMany = 16;
  for (int round = 0; round < 20; ++round) {
    const OwnFolder folder(dir_.path() / std::to_string(round));
    std::vector<std::thread> threads;
    for (std::uint64_t i = 1; i <= kMany; ++i)
      threads.emplace_back([&, i] {
        EXPECT_TRUE(remember_taken(folder, of_serial(i), LastPack::kNewest));
      });
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(last(folder), kMany);
    const fs::directory_iterator files(folder.path());
    EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "only the memory is left";
  }
}

TEST_F(PackIdentityTest, AMemoryThatAnybodyCanWriteIsReplacedAndNotBelieved) {
  remember(9'000'000);
  fs::permissions(fs::directory_iterator(folder_.path())->path(), fs::perms(0666));
  EXPECT_EQ(last(), 0U);
  remember(5);
  EXPECT_EQ(last(), 5U);
}

}  // namespace
}  // namespace kiln::cache
