// What is remembered of an include tree, and when it does not hold.

#include "key/tree_memo.h"

#include "files.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::key {
namespace {

using test::write;

/// A tree of two files, and a memo of all of it.
class TreeMemoTest : public testing::Test {
 protected:
  TreeMemoTest() {
    write(root_ / "a.h", "a");
    write(root_ / "d/b.h", "b");
    WalkedTree walked = walk_tree(root_).value();
    for (const WalkedFile& file : walked.files)
      memo_.files.push_back(
          {file.path, file.stamp, true, Digest::of(as_bytes(file.path))});
    memo_.files[1].names_build_time = true;
    memo_.operands = {"a.h", "stdint.h"};
    memo_.folders = std::move(walked.folders);
    memo_.digest = Digest::of(as_bytes("tree"));
    // As on ext4, whatever this is.
    for (TreeFile& file : memo_.files) file.stamp.reliable = true;
    for (WalkedFolder& folder : memo_.folders) folder.stamp.reliable = true;
  }

  /// The files as a new walk has them, their contents unknown.
  [[nodiscard]] std::vector<TreeFile> walked() const {
    std::vector<TreeFile> files;
    for (const TreeFile& file : memo_.files)
      files.push_back({file.path, file.stamp, false, std::nullopt});
    return files;
  }
  [[nodiscard]] TreeMemo stored() const { return TreeMemos(memos_).read(root_); }
  [[nodiscard]] MemoWrite store() const {
    return TreeMemos(memos_).write(root_, memo_);
  }

  const test::TempDir dir_;
  const fs::path root_ = dir_.path() / "tree";
  const OwnFolder memos_ = dir_.path() / "memo";
  TreeMemo memo_;
};

TEST_F(TreeMemoTest, ComesBackAsItWasWritten) {
  ASSERT_EQ(store(), MemoWrite::kWritten);
  const TreeMemo memo = stored();
  ASSERT_EQ(memo.files.size(), 2U);
  for (std::size_t i = 0; i < memo.files.size(); ++i) {
    EXPECT_EQ(memo.files[i].path, memo_.files[i].path);
    EXPECT_EQ(memo.files[i].stamp, memo_.files[i].stamp);
    EXPECT_EQ(memo.files[i].content, memo_.files[i].content);
    EXPECT_TRUE(memo.files[i].settled);
    EXPECT_EQ(memo.files[i].names_build_time, i == 1);
  }
  EXPECT_THAT(memo.operands, ElementsAre("a.h", "stdint.h"));
  ASSERT_EQ(memo.folders.size(), 2U);
  EXPECT_EQ(memo.folders[1].path, "d/");
  EXPECT_EQ(memo.folders[1].stamp, memo_.folders[1].stamp);
  EXPECT_EQ(memo.digest, memo_.digest);
  EXPECT_THAT(TreeMemos(memos_).read(root_ / "d").files, IsEmpty()) << "another tree's";
}

TEST_F(TreeMemoTest, OfAnyOtherLengthOrFormatIsNone) {
  ASSERT_EQ(store(), MemoWrite::kWritten);
  const std::string name =
      fs::directory_iterator(dir_.path() / "memo")->path().filename();
  Bytes bytes = read_memo(memos_, name).value();
  const auto is_none = [&](ByteView payload) {
    EXPECT_EQ(write_memo(memos_, name, payload), MemoWrite::kWritten);
    const TreeMemo memo = stored();
    return memo.files.empty() && memo.folders.empty() && memo.operands.empty();
  };
  ASSERT_FALSE(is_none(bytes));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    ASSERT_TRUE(is_none(ByteView(bytes).first(size))) << size;
  bytes[0] ^= std::byte{1};
  EXPECT_TRUE(is_none(bytes));
  bytes[0] ^= std::byte{1};
  bytes.push_back(std::byte{0});
  EXPECT_TRUE(is_none(bytes));
}

TEST_F(TreeMemoTest, OfOneStampThatSaysTooLittleIsOfThisProcessAlone) {
  memo_.files[1].stamp.reliable = false;
  TreeMemos process(memos_);
  EXPECT_EQ(process.write(root_, memo_), MemoWrite::kNotNeeded);
  EXPECT_EQ(process.read(root_).digest, memo_.digest);
  EXPECT_THAT(stored().files, IsEmpty());
  memo_.files[1].stamp.reliable = true;
  memo_.digest = Digest::of(as_bytes("other"));
  EXPECT_EQ(process.write(root_, memo_), MemoWrite::kWritten);
  EXPECT_EQ(process.read(root_).digest, memo_.digest);
}

TEST_F(TreeMemoTest, HoldsWhileFilesAndFoldersAreAsTheyWere) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  EXPECT_TRUE(is_unchanged(memo_, root_));
  write(root_ / "d/b.h", "longer");
  EXPECT_FALSE(is_unchanged(memo_, root_)) << "a file";
}

TEST_F(TreeMemoTest, DoesNotHoldOnceAFolderIsAnotherOrGone) {
  TreeMemo other = memo_;
  other.folders[1].stamp.mtime_ns -= 1;
  EXPECT_FALSE(is_unchanged(other, root_));
  fs::remove_all(root_ / "d");
  EXPECT_FALSE(is_unchanged(memo_, root_));
  EXPECT_FALSE(is_unchanged(memo_, dir_.path() / "nowhere"));
}

TEST_F(TreeMemoTest, OfAPartOfTheTreeSparesNoWalk) {
  memo_.folders.clear();
  EXPECT_FALSE(is_unchanged(memo_, root_));
}

TEST_F(TreeMemoTest, GivesItsDigestsToFilesThatAreAsTheyWere) {
  std::vector<TreeFile> files = walked();
  files.insert(files.begin() + 1, TreeFile{"b.h", {}, false, std::nullopt});
  ASSERT_TRUE(copy_digests(memo_, files));
  EXPECT_EQ(files[0].content, memo_.files[0].content);
  EXPECT_EQ(files[1].content, std::nullopt) << "it is new";
  EXPECT_FALSE(files[1].settled);
  EXPECT_EQ(files[2].content, memo_.files[1].content);
  EXPECT_TRUE(files[2].settled);
  EXPECT_FALSE(files[0].names_build_time);
  EXPECT_TRUE(files[2].names_build_time);
}

TEST_F(TreeMemoTest, GivesNothingWhereOneFileIsAnotherOrGone) {
  std::vector<TreeFile> files = walked();
  files.back().stamp.ctime_ns += 1;
  EXPECT_FALSE(copy_digests(memo_, files));
  EXPECT_EQ(files[0].content, std::nullopt) << "its operands are of all files";
  files.pop_back();
  EXPECT_FALSE(copy_digests(memo_, files));
  EXPECT_EQ(files[0].content, std::nullopt);
}

}  // namespace
}  // namespace kiln::key
