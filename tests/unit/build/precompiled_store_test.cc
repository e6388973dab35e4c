// Precompiled headers as files: who finds, makes and removes them.

#include "build/precompiled_store.h"

#include <chrono>
#include <fstream>
#include <string>
#include <tuple>

#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

Digest key(int number) {
  return Digest::of(as_bytes(std::to_string(number)));
}

class PrecompiledStoreTest : public testing::Test {
 protected:
  [[nodiscard]] PrecompiledStore store(std::uint64_t limit = 1000) const {
    return {OwnFolder(folder_), limit};
  }
  /// One with 100 bytes.
  [[nodiscard]] Result<void> publish(int number, std::uint64_t limit = 1000) const {
    const auto file = store().new_file();
    EXPECT_TRUE(file) << file.error().message;
    std::ofstream(*file) << std::string(100, 'x');
    return store(limit).publish(
        key(number),
        {.file = {*file, 100, "ab", 4096},
         .files = {.opened = {{"/a.h", FileStamp{}}}, .missed = {"/b.h"}}});
  }
  void age(const fs::path& path, std::chrono::hours age) const {
    fs::last_write_time(path, fs::file_time_type::clock::now() - age);
  }

  const test::TempDir temp_;
  const fs::path folder_ = temp_.path() / "pch";
};

TEST_F(PrecompiledStoreTest, WhatWasPublishedIsFoundWithItsReport) {
  EXPECT_FALSE(store().find(key(1)));
  ASSERT_TRUE(publish(1));
  const auto found = store().find(key(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->file.path, folder_ / key(1).hex() / "headers");
  EXPECT_EQ(found->file.bytes, 100U);
  EXPECT_EQ(found->file.xxh3, "ab");
  EXPECT_EQ(found->file.nvrtc_address, 4096U);
  EXPECT_THAT(found->files.opened, ElementsAre(OpenedFile{"/a.h", std::nullopt}));
  EXPECT_THAT(found->files.missed, ElementsAre("/b.h"));
  EXPECT_FALSE(store().find(key(2)));
}

TEST_F(PrecompiledStoreTest, OfTwoThatWereMadeTheFirstStays) {
  ASSERT_TRUE(publish(1));
  age(folder_ / key(1).hex() / "record", std::chrono::hours(1));
  EXPECT_FALSE(publish(1));
  EXPECT_EQ(store().totals().entries, 1U);
}

TEST_F(PrecompiledStoreTest, AboveTheLimitTheLeastRecentlyUsedIsRemoved) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(publish(i, 300));
    age(folder_ / key(i).hex() / "record", std::chrono::hours(10 - i));
  }
  ASSERT_TRUE(store().find(key(0)));  // a use
  ASSERT_TRUE(publish(3, 300));
  EXPECT_TRUE(store().find(key(0)));
  EXPECT_FALSE(store().find(key(1)));
  EXPECT_TRUE(store().find(key(2)));
  EXPECT_EQ(store().totals().bytes, 300U);
  EXPECT_FALSE(publish(4, 99)) << "over the limit by itself";
}

TEST_F(PrecompiledStoreTest, OfAllThatSeeAWishOneFulfilsIt) {
  EXPECT_FALSE(store().take_wanted(key(1)));
  store().want(key(1));
  EXPECT_TRUE(store().take_wanted(key(1)));
  EXPECT_FALSE(store().take_wanted(key(1)));
  ASSERT_TRUE(publish(1));
  store().want(key(1));
  EXPECT_FALSE(store().take_wanted(key(1))) << "it is there";
}

TEST_F(PrecompiledStoreTest, WhatIsTakenIsNotWantedForTenMinutesUnlessReleased) {
  const auto take = [this] {
    store().want(key(1));
    return store().take_wanted(key(1));
  };
  EXPECT_TRUE(take());
  EXPECT_FALSE(take());
  store().release(key(1));
  EXPECT_TRUE(take());
  age(folder_ / (key(1).hex() + ".taken"), std::chrono::hours(1));
  EXPECT_TRUE(take());
  EXPECT_FALSE(take()) << "taken just now";
}

TEST_F(PrecompiledStoreTest, ATrimToASmallerLimitIsToldBeforeItIsDone) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(publish(i));
  EXPECT_EQ(store(250).trim(cache::DryRun::kYes).entries, 1U);
  EXPECT_EQ(store().totals().entries, 3U);
  EXPECT_EQ(store(250).trim().bytes, 100U);
  EXPECT_EQ(store().totals().entries, 2U);
  EXPECT_EQ(store(0).trim().entries, 2U);
  EXPECT_EQ(PrecompiledStore(OwnFolder(), 0).trim().entries, 0U);
}

TEST_F(PrecompiledStoreTest, WhatIsUnfinishedCountsAsBytes) {
  ASSERT_TRUE(publish(1));
  const auto unfinished = store().new_file();
  ASSERT_TRUE(unfinished);
  std::ofstream(*unfinished) << std::string(50, 'x');
  EXPECT_EQ(store().totals().entries, 1U);
  EXPECT_EQ(store().totals().bytes, 150U);
}

TEST_F(PrecompiledStoreTest, WhatWasRefusedIsNotWantedForAWeek) {
  ASSERT_TRUE(publish(1));
  store().refuse(key(1));
  EXPECT_FALSE(store().find(key(1)));
  store().want(key(1));
  EXPECT_FALSE(store().take_wanted(key(1)));
  age(folder_ / (key(1).hex() + ".refused"), std::chrono::hours(8 * 24));
  store().want(key(1));
  EXPECT_TRUE(store().take_wanted(key(1)));
}

TEST_F(PrecompiledStoreTest, WhatWasRefusedByAClockThatWasAheadIsNotSoUntilThen) {
  ASSERT_TRUE(publish(1));
  store().refuse(key(1));
  age(folder_ / (key(1).hex() + ".refused"), -std::chrono::hours(8 * 24));
  store().want(key(1));
  EXPECT_TRUE(store().take_wanted(key(1)));
}

TEST_F(PrecompiledStoreTest, ADamagedOneCanBeMadeAgainAtOnce) {
  ASSERT_TRUE(publish(1));
  store().remove(key(1));
  EXPECT_FALSE(store().find(key(1)));
  ASSERT_TRUE(publish(1));
  EXPECT_TRUE(store().find(key(1)));
}

TEST_F(PrecompiledStoreTest, WhatWasLeftUnfinishedIsSweptWithTheNext) {
  const auto old = store().new_file();
  const auto recent = store().new_file();
  ASSERT_TRUE(old && recent);
  age(old->parent_path(), std::chrono::hours(2));
  ASSERT_TRUE(publish(1));
  EXPECT_FALSE(fs::exists(old->parent_path()));
  EXPECT_TRUE(fs::exists(recent->parent_path()));
}

TEST_F(PrecompiledStoreTest, ClearLeavesNothing) {
  ASSERT_TRUE(publish(1));
  ASSERT_TRUE(publish(2));
  store().want(key(3));
  const PrecompiledTotals cleared = store().clear();
  EXPECT_EQ(cleared.entries, 2U);
  EXPECT_EQ(cleared.bytes, 200U);
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_EQ(store().clear().entries, 0U);
}

TEST_F(PrecompiledStoreTest, ALinkInItsPlaceIsNotFollowed) {
  ASSERT_TRUE(publish(1));
  const fs::path real = temp_.path() / "elsewhere";
  fs::rename(folder_, real);
  fs::create_directory_symlink(real, folder_);
  EXPECT_FALSE(store().find(key(1)));
  EXPECT_FALSE(store().new_file());
  store().want(key(2));
  store().refuse(key(1));
  EXPECT_TRUE(fs::exists(real / key(1).hex()));
  EXPECT_FALSE(fs::exists(real / (key(2).hex() + ".wanted")));
  std::ignore = store().clear();  // what it counts is of no interest here
  EXPECT_TRUE(fs::exists(real / key(1).hex()));
}

}  // namespace
}  // namespace kiln
