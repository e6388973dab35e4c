// Which files and folders a walk lists, and when the folders tell that nothing changed.

#include "key/tree_walk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "files.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/unique_fd.h"

namespace kiln::key {
namespace {

using test::write;

class TreeWalkTest : public testing::Test {
 protected:
  [[nodiscard]] fs::path at(const std::string& path) const {
    return dir_.path() / path;
  }

  /// The paths of the files.
  std::vector<std::string> walk() {
    auto walked = walk_tree(dir_.path());
    EXPECT_TRUE(walked) << walked.error().message;
    if (walked)
      tree_ = *std::move(walked);
    std::vector<std::string> paths;
    for (const WalkedFile& file : tree_.files) paths.push_back(file.path);
    return paths;
  }
  [[nodiscard]] std::vector<std::string> folders() const {
    std::vector<std::string> paths;
    for (const WalkedFolder& folder : tree_.folders) paths.push_back(folder.path);
    return paths;
  }

  const test::TempDir dir_;
  WalkedTree tree_;
};

TEST_F(TreeWalkTest, FilesOfAFolderStandTogetherInItsPlace) {
  for (const char* const path : {"a-b", "a/z.h", "a.h", "a/b/c.h", "Z.h"})
    write(at(path), "");
  const auto paths = walk();
  EXPECT_THAT(paths, ElementsAre("Z.h", "a/b/c.h", "a/z.h", "a-b", "a.h"));
  EXPECT_TRUE(std::is_sorted(paths.begin(), paths.end(), walks_before));
  EXPECT_THAT(folders(), ElementsAre(".", "a/", "a/b/"));
  EXPECT_TRUE(tree_.folder_stamps_suffice);
}

TEST(WalksBefore, GoesByComponentsAndTheirBytes) {
  EXPECT_TRUE(walks_before("a/z", "a-b"));
  EXPECT_TRUE(walks_before("a", "a/b"));
  EXPECT_TRUE(walks_before("a.h", "b"));
  EXPECT_TRUE(walks_before("z", "\xC3\xA4")) << "bytes have no sign";
  EXPECT_FALSE(walks_before("a", "a"));
}

TEST_F(TreeWalkTest, StampsAreThoseOfWhatALinkLeadsTo) {
  const test::TempDir other;
  write(other.path() / "a.h", "twelve bytes");
  fs::create_symlink(other.path() / "a.h", at("link.h"));
  fs::create_directory_symlink(other.path(), at("folder"));
  EXPECT_THAT(walk(), ElementsAre("folder/a.h", "link.h"));
  EXPECT_EQ(tree_.files[0].stamp, tree_.files[1].stamp);
  EXPECT_EQ(tree_.files[0].stamp.size, 12U);
  EXPECT_TRUE(tree_.folder_stamps_suffice);
}

TEST_F(TreeWalkTest, ALoopOfLinksEndsWhereItMeetsItself) {
  write(at("a/b.h"), "");
  fs::create_directory_symlink(dir_.path(), at("a/again"));
  EXPECT_THAT(walk(), ElementsAre("a/b.h"));
  EXPECT_FALSE(tree_.folder_stamps_suffice);
}

TEST_F(TreeWalkTest, TwoLinksToAFolderAreTwoFolders) {
  write(at("a/b.h"), "");
  fs::create_directory_symlink(at("a"), at("c"));
  EXPECT_THAT(walk(), ElementsAre("a/b.h", "c/b.h"));
}

TEST_F(TreeWalkTest, FoldersDoNotTellWhereABrokenLinkWillLead) {
  fs::create_symlink("nowhere", at("broken.h"));
  EXPECT_THAT(walk(), IsEmpty());
  EXPECT_FALSE(tree_.folder_stamps_suffice);
  fs::remove(at("broken.h"));
  fs::create_symlink("self.h", at("self.h"));
  EXPECT_THAT(walk(), IsEmpty());
  EXPECT_FALSE(tree_.folder_stamps_suffice);
}

TEST_F(TreeWalkTest, WhatIsNeitherFileNorFolderIsLeftOut) {
  ASSERT_EQ(::mkfifo(at("pipe.h").c_str(), 0600), 0);
  EXPECT_THAT(walk(), IsEmpty());
  EXPECT_TRUE(tree_.folder_stamps_suffice) << "a file in its place changes the folder";
  fs::create_symlink("pipe.h", at("link.h"));
  EXPECT_THAT(walk(), IsEmpty());
  EXPECT_FALSE(tree_.folder_stamps_suffice) << "a file behind the link does not";
}

TEST_F(TreeWalkTest, AFolderThatMayNotBeReadIsListedAsSuch) {
  if (::geteuid() == 0)
    GTEST_SKIP() << "root may read everything";
  write(at("a/b.h"), "");
  fs::permissions(at("a"), fs::perms::none);
  EXPECT_THAT(walk(), ElementsAre("a/"));
  EXPECT_FALSE(tree_.files[0].readable);
  EXPECT_FALSE(tree_.folder_stamps_suffice);
  fs::permissions(at("a"), fs::perms::owner_all);
}

TEST_F(TreeWalkTest, SixtyFourLevelsAreTheMost) {
  std::string path;
  for (int i = 0; i < 63; ++i) path += "d/";
  write(at(path + "a.h"), "");
  EXPECT_THAT(walk(), ElementsAre(path + "a.h"));
  fs::create_directory(at(path + "d"));
  EXPECT_THAT(
      walk_tree(dir_.path()),
      test::IsError(ErrorCode::kResourceLimit, HasSubstr("has over 64 levels deep")));
}

TEST_F(TreeWalkTest, AFolderThatIsNotThereIsNotFound) {
  write(at("file"), "");
  for (const char* const path : {"missing", "file", "file/below"}) {
    const auto walked = walk_tree(at(path));
    EXPECT_THAT(walked,
                test::IsError(ErrorCode::kNotFound, HasSubstr(at(path).native())))
        << path;
  }
}

TEST_F(TreeWalkTest, AStampBelowIsThatOfTheWalk) {
  write(at("a/b.h"), "x");
  std::ignore = walk();
  const UniqueFd root(::open(dir_.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  FileStamps stamps;
  for (const WalkedFolder& folder : tree_.folders)
    EXPECT_EQ(stamps.below(root.get(), folder.path.c_str()), folder.stamp)
        << folder.path;
  EXPECT_EQ(stamps.below(root.get(), "a/b.h"), tree_.files.at(0).stamp);
  EXPECT_EQ(stamps.below(root.get(), "a/missing.h"), FileStamp{});
}

}  // namespace
}  // namespace kiln::key
