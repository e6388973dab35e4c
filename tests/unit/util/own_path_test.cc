#include "util/own_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

class OwnFolderTest : public testing::Test {
 protected:
  OwnFolderTest() {
    fs::create_directory(path_);
    std::ofstream(path_ / "hint") << "text";
    fs::permissions(path_, fs::perms::owner_all);
    fs::permissions(path_ / "hint", fs::perms::owner_read);
  }
  /// What is said of "hint" and of the folder; each refusal has to be told.
  void expect_refused(bool folder_too) {
    EXPECT_EQ(folder_.has("hint").error().code, ErrorCode::kUntrusted);
    EXPECT_EQ(refused_, 1);
    EXPECT_EQ(folder_.check().has_value(), !folder_too);
    EXPECT_EQ(refused_, folder_too ? 2 : 1);
  }

  const test::TempDir dir_;
  const fs::path path_ = dir_.path() / "hints";
  int refused_ = 0;
  const OwnFolder folder_{path_, [this] { ++refused_; }};
};

TEST(Secret, OfRootsGroupIsOneForAProcessOfThatGroup) {
  struct stat secret {};
  secret.st_mode = S_IFREG | 0440;
  EXPECT_EQ(is_secret(secret), ::getegid() == 0)
      << "root:root 0440, as in a pod of root";
  for (const mode_t mode : {0444, 0460, 0640}) {
    secret.st_mode = S_IFREG | mode;
    EXPECT_EQ(is_secret(secret), mode == 0640 && ::geteuid() != 0 && ::getegid() == 0);
  }
}

TEST_F(OwnFolderTest, HasWhatIsOursAndTellsOfNothing) {
  EXPECT_TRUE(folder_.has("hint").value());
  EXPECT_FALSE(folder_.has("another").value());
  EXPECT_TRUE(folder_.check());
  fs::remove_all(path_);
  EXPECT_FALSE(folder_.has("hint").value());
  EXPECT_TRUE(folder_.check()) << "it is yet to be made";
  EXPECT_EQ(refused_, 0);
}

TEST_F(OwnFolderTest, AFileThatOthersCanWriteIsRefusedAndTold) {
  ::chmod((path_ / "hint").c_str(), 0620);
  expect_refused(false);
}

TEST_F(OwnFolderTest, AFolderThatOthersCanWriteIsRefusedAndTold) {
  ::chmod(path_.c_str(), 0702);
  expect_refused(true);
}

TEST_F(OwnFolderTest, ALinkIsRefusedAndToldWhateverItLeadsTo) {
  fs::rename(path_ / "hint", dir_.path() / "hint");
  fs::create_symlink(dir_.path() / "hint", path_ / "hint");
  expect_refused(false);
  fs::rename(path_, dir_.path() / "moved");
  fs::create_symlink(dir_.path() / "moved", path_);
  refused_ = 0;
  expect_refused(true);
}

TEST_F(OwnFolderTest, WhatNobodyElseThanTheFoldersOwnerHasIsOurs) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "ONLY ROOT CAN GIVE FILES AWAY: foreign owners were not tried";
  ASSERT_EQ(::chown((path_ / "hint").c_str(), 47'111, 47'111), 0);
  expect_refused(false);
  refused_ = 0;
  for (const fs::path& each : {path_, dir_.path()})
    ASSERT_EQ(::chown(each.c_str(), 47'111, 47'111), 0);
  EXPECT_TRUE(folder_.has("hint").value());
  EXPECT_EQ(refused_, 0);
}

}  // namespace
}  // namespace kiln
