// When a stamp is enough to know a file again.

#include "util/file_stamp.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_dir.h"

namespace kiln {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;
using Time = std::chrono::system_clock::time_point;

constexpr Time kRead{seconds(1'000'000)};

FileStamp stamp(nanoseconds mtime_before_read, nanoseconds ctime_before_read) {
  const nanoseconds read = kRead.time_since_epoch();
  FileStamp stamp;
  stamp.mtime_ns = (read - mtime_before_read).count();
  stamp.ctime_ns = (read - ctime_before_read).count();
  return stamp;
}

TEST(FileStamp, IsSettledSoLongAfterBothTimes) {
  for (const seconds age : {seconds(2), kSettleTime}) {
    const nanoseconds too_new = age - nanoseconds(1);
    EXPECT_TRUE(is_settled(stamp(age, age), kRead, age));
    EXPECT_FALSE(is_settled(stamp(too_new, age), kRead, age));
    EXPECT_FALSE(is_settled(stamp(age, too_new), kRead, age));
  }
}

TEST(FileStamp, OfAFileFromTheFutureIsNotSettled) {
  EXPECT_FALSE(is_settled(stamp(seconds(-60), seconds(100)), kRead));
  EXPECT_FALSE(is_settled(stamp(seconds(100), seconds(-60)), kRead));
}

TEST(FileStamp, HasEachTimeToTheNanosecondAlsoBefore1970) {
  struct stat info {};
  info.st_dev = 1;
  info.st_ino = 2;
  info.st_size = 3;
  info.st_mtim = {.tv_sec = 4, .tv_nsec = 5};
  info.st_ctim = {.tv_sec = -1, .tv_nsec = 6};
  EXPECT_EQ(stamp_of(info), (FileStamp{.device = 1,
                                       .inode = 2,
                                       .size = 3,
                                       .mtime_ns = 4'000'000'005,
                                       .ctime_ns = -999'999'994}));
}

/// Of a name, of a descriptor, and below a folder.
void expect_one_stamp(const std::filesystem::path& folder, bool reliable) {
  std::ofstream(folder / "a") << "text";
  const auto stamp = FileStamps().of_readable((folder / "a").c_str());
  ASSERT_TRUE(stamp);
  EXPECT_EQ(stamp->size, 4U);
  EXPECT_EQ(stamp->reliable, reliable);
  EXPECT_EQ(stamp_of(UniqueFd(::open((folder / "a").c_str(), O_RDONLY)).get()), stamp);
  const UniqueFd fd(::open(folder.c_str(), O_PATH | O_DIRECTORY));
  EXPECT_EQ(FileStamps().below(fd.get(), "a"), stamp);
  EXPECT_EQ(FileStamps().below(fd.get(), "none"), FileStamp{});
}

TEST(FileStamps, AreReliableOnAFileSystemThatMovesCtime) {
  const test::TempDir folder;
  struct statfs info {};
  ASSERT_EQ(::statfs(folder.path().c_str(), &info), 0);
  if (info.f_type != EXT4_SUPER_MAGIC && info.f_type != XFS_SUPER_MAGIC &&
      info.f_type != BTRFS_SUPER_MAGIC && info.f_type != F2FS_SUPER_MAGIC)
    GTEST_SKIP() << folder.path() << " is on another";
  expect_one_stamp(folder.path(), true);
}

TEST(FileStamps, AreNotReliableOnTmpfs) {
  std::string name = "/dev/shm/kiln-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr)
    GTEST_SKIP() << "there is no tmpfs at /dev/shm";
  expect_one_stamp(name, false);
  std::filesystem::remove_all(name);
}

TEST(FileStamps, AreOfFilesThatMayBeReadAlone) {
  const test::TempDir folder;
  FileStamps stamps;
  EXPECT_FALSE(stamps.of_readable(folder.path().c_str()));
  EXPECT_FALSE(stamps.of_readable((folder.path() / "none").c_str()));
  EXPECT_FALSE(stamps.of_readable("/dev/null"));
  ASSERT_EQ(::mkfifo((folder.path() / "fifo").c_str(), 0600), 0);
  EXPECT_FALSE(stamps.of_readable((folder.path() / "fifo").c_str()));
}

}  // namespace
}  // namespace kiln
