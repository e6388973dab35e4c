// The digest of an include tree, and when its memo may be believed.

#include "key/include_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "key/tree_memo.h"
#include "key/tree_walk.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln::key {
namespace {

using test::later;
using test::write;

class IncludeTreeTest : public testing::Test {
 protected:
  IncludeTreeTest() {
    write(root_ / "a.h", "#include <b/c.h>\n#include \"gone.h\"\n");
    write(root_ / "b" / "c.h", "c");
    write(root_ / "b" / "d.h", "d");
    write(root_ / "b.h", "b");
  }

  IncludeTreeRead read(std::chrono::system_clock::time_point now = later()) {
    auto result = read(root_, now);
    EXPECT_TRUE(result) << result.error().message;
    return *std::move(result);
  }
  /// As a new process.
  Result<IncludeTreeRead> read(const fs::path& root,
                               std::chrono::system_clock::time_point now = later(),
                               const std::stop_token& stop = {}) {
    TreeMemos memos(memo_);
    return read_include_tree(root, memos, now, stop);
  }
  fs::path memo_path() { return fs::directory_iterator(memo_)->path(); }

  test::TempDir dir_;
  fs::path root_ = dir_.path() / "include";
  fs::path memo_ = dir_.path() / "memo";
};

TEST_F(IncludeTreeTest, ListsFilesInOneOrderAndFindsThem) {
  const auto tree = read().tree;
  std::vector<std::string> paths;
  for (const TreeFile& file : tree->files()) {
    paths.push_back(file.path);
    EXPECT_EQ(tree->find(file.path), &file);
  }
  EXPECT_THAT(paths, ElementsAre("a.h", "b/c.h", "b/d.h", "b.h"));
  EXPECT_EQ(tree->find("b"), nullptr);
  EXPECT_EQ(tree->find("z.h"), nullptr);
  EXPECT_THAT(tree->operands(), ElementsAre("b/c.h", "gone.h"));
}

TEST_F(IncludeTreeTest, KnowsWhichFilesNameTheTimeOfTheBuild) {
  write(root_ / "b.h", "#ifdef VERBOSE\n__DATE__\n#endif");
  for (const char* const reader : {"the first", "one with the memo"}) {
    const auto tree = read().tree;
    EXPECT_TRUE(tree->find("b.h")->names_build_time) << reader;
    EXPECT_FALSE(tree->find("a.h")->names_build_time) << reader;
  }
}

TEST_F(IncludeTreeTest, EndsWhenItIsStopped) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(read(root_, later(), stop.get_token()),
              test::IsError(ErrorCode::kCancelled));
  EXPECT_EQ(read().files_hashed, 4U);
}

TEST_F(IncludeTreeTest, HasTheSameDigestInAnotherFolder) {
  const auto before = read().tree->digest();
  fs::copy(root_, dir_.path() / "copy", fs::copy_options::recursive);
  EXPECT_EQ(read(dir_.path() / "copy")->tree->digest(), before);
}

TEST_F(IncludeTreeTest, HasAnotherDigestForAnyOtherContentNameOrFile) {
  const auto before = read().tree->digest();
  write(root_ / "b" / "c.h", "C");
  const auto changed = read().tree->digest();
  EXPECT_NE(changed, before);
  write(root_ / "b" / "c.h", "c");
  EXPECT_EQ(read().tree->digest(), before);
  fs::rename(root_ / "b" / "c.h", root_ / "b" / "e.h");
  EXPECT_NE(read().tree->digest(), before);
  fs::rename(root_ / "b" / "e.h", root_ / "b" / "c.h");
  write(root_ / "new.h", "");
  EXPECT_NE(read().tree->digest(), before);
}

TEST_F(IncludeTreeTest, IsReadOnceAndThenOnlyLookedAt) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  const auto first = read();
  EXPECT_EQ(first.files_hashed, 4U);
  EXPECT_EQ(first.memo, MemoWrite::kWritten);
  const auto second = read();
  EXPECT_EQ(second.files_hashed, 0U);
  EXPECT_EQ(second.memo, MemoWrite::kNotNeeded);
  EXPECT_EQ(second.tree->digest(), first.tree->digest());
  EXPECT_EQ(second.tree->operands(), first.tree->operands());
}

TEST_F(IncludeTreeTest, SeesAChangeThatKeepsSizeAndModificationTime) {
  const auto before = read().tree->digest();
  const fs::path path = root_ / "b" / "c.h";
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  write(path, "x");
  const struct timespec times[2] = {info.st_atim, info.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_NE(read().tree->digest(), before);
}

TEST_F(IncludeTreeTest, DoesNotBelieveAMemoOfFilesThatWereJustWritten) {
  const auto now = std::chrono::system_clock::now();
  const auto first = read(now);
  EXPECT_EQ(first.files_hashed, 4U);
  EXPECT_EQ(first.memo, MemoWrite::kNotNeeded);
  EXPECT_EQ(read(now).files_hashed, 4U);
}

TEST_F(IncludeTreeTest, ReadsOnlyTheFilesThatAreNotSettled) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  const fs::path path = root_ / "b.h";
  const auto future = std::chrono::system_clock::now() + std::chrono::hours(1);
  const struct timespec time = {std::chrono::system_clock::to_time_t(future), 0};
  const struct timespec times[2] = {time, time};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_EQ(read().files_hashed, 4U);
  const auto second = read();
  EXPECT_EQ(second.files_hashed, 1U);
  EXPECT_EQ(second.memo, MemoWrite::kNotNeeded);
}

TEST_F(IncludeTreeTest, IsReadAgainWhereTheMemoIsDamaged) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  const auto before = read().tree->digest();
  const std::string memo = *read_text_file(memo_path(), 1U << 20U);
  for (const std::size_t at : {std::size_t{0}, memo.size() / 2, memo.size() - 1}) {
    std::string flipped = memo;
    flipped[at] ^= 1;
    write(memo_path(), flipped);
    const auto again = read();
    EXPECT_EQ(again.files_hashed, 4U);
    EXPECT_EQ(again.tree->digest(), before);
    write(memo_path(), memo.substr(0, at));
    EXPECT_EQ(read().files_hashed, 4U);
  }
}

TEST_F(IncludeTreeTest, IsReadAgainWhereTheMemoIsWellFormedButSenseless) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  const auto before = read().tree->digest();
  const fs::path name = memo_path().filename();
  const std::string payload(as_text(*read_memo(memo_, name.native())));
  for (std::size_t size = 0; size < payload.size(); ++size) {
    ASSERT_EQ(write_memo(memo_, name.native(), as_bytes(payload.substr(0, size))),
              MemoWrite::kWritten);
    EXPECT_EQ(read().tree->digest(), before);
  }
}

TEST_F(IncludeTreeTest, NeedsNoFolderToWriteTo) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  write(dir_.path() / "file", "");
  memo_ = dir_.path() / "file";
  const auto whole = read();
  EXPECT_EQ(whole.memo, MemoWrite::kFailed);
  EXPECT_EQ(whole.files_hashed, 4U);
}

TEST_F(IncludeTreeTest, FollowsLinksButNoLoop) {
  const auto before = read().tree->digest();
  fs::create_directory_symlink(root_, root_ / "b" / "loop");
  fs::create_symlink("loop2", root_ / "loop2");
  fs::create_symlink("nowhere", root_ / "broken");
  EXPECT_EQ(read().tree->digest(), before);
  fs::create_directory_symlink(root_ / "b", root_ / "z");
  fs::create_symlink(root_ / "a.h", root_ / "zz.h");
  const auto tree = read().tree;
  EXPECT_NE(tree->find("z/c.h"), nullptr);
  EXPECT_NE(tree->find("zz.h"), nullptr);
  EXPECT_NE(tree->digest(), before);
}

TEST_F(IncludeTreeTest, SeesWhatALinkPointsToOnceItIsThere) {
  if (const auto why = test::why_no_memo(dir_.path()); !why.empty())
    GTEST_SKIP() << why;
  const auto before = read().tree->digest();
  fs::create_symlink(dir_.path() / "later.h", root_ / "link.h");
  fs::create_directory_symlink(dir_.path() / "later", root_ / "links");
  EXPECT_EQ(read().tree->digest(), before);
  write(dir_.path() / "later.h", "");
  const auto with_file = read().tree->digest();
  EXPECT_NE(with_file, before);
  write(dir_.path() / "later" / "x.h", "");
  const auto with_folder = read().tree->digest();
  EXPECT_NE(with_folder, with_file);
  EXPECT_EQ(read().files_hashed, 0U);
  write(dir_.path() / "later" / "y.h", "");
  EXPECT_NE(read().tree->digest(), with_folder);
}

TEST_F(IncludeTreeTest, SeesAFolderThatIsReplacedOrRenamed) {
  const auto before = read().tree->digest();
  fs::rename(root_ / "b", dir_.path() / "away");
  const auto without = read().tree->digest();
  EXPECT_NE(without, before);
  fs::rename(dir_.path() / "away", root_ / "b");
  EXPECT_EQ(read().tree->digest(), before);
  fs::rename(root_ / "b", root_ / "c");
  EXPECT_NE(read().tree->digest(), before);
}

TEST_F(IncludeTreeTest, LeavesOutWhatIsNoFile) {
  const auto before = read().tree->digest();
  ASSERT_EQ(::mkfifo((root_ / "fifo").c_str(), 0600), 0);
  fs::create_directory(root_ / "empty");
  EXPECT_EQ(read().tree->digest(), before);
}

TEST_F(IncludeTreeTest, CountsWhatMayNotBeReadAsSuch) {
  if (::geteuid() == 0)
    GTEST_SKIP() << "root may read everything";
  const auto before = read().tree->digest();
  fs::permissions(root_ / "b.h", fs::perms::none);
  fs::permissions(root_ / "b", fs::perms::none);
  const auto tree = read().tree;
  EXPECT_NE(tree->digest(), before);
  EXPECT_EQ(tree->find("b/c.h"), nullptr);
  EXPECT_FALSE(tree->find("b.h")->content);
  fs::permissions(root_ / "b", fs::perms::owner_all);
}

TEST_F(IncludeTreeTest, ThatIsNotThereIsNotFound) {
  EXPECT_EQ(read(dir_.path() / "none").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read(root_ / "a.h").error().code, ErrorCode::kNotFound);
}

TEST_F(IncludeTreeTest, ThatIsTooDeepIsRefused) {
  fs::path deep = root_;
  for (int i = 0; i < 70; ++i) deep /= "d";
  fs::create_directories(deep);
  EXPECT_THAT(read(root_), test::IsError(ErrorCode::kResourceLimit));
}

}  // namespace
}  // namespace kiln::key
