// When a stamp is enough to know a file again.

#include "util/file_stamp.h"

#include <gtest/gtest.h>

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

TEST(FileStamp, IsSettledTwoSecondsAfterBothTimes) {
  constexpr nanoseconds kSettled = seconds(2);
  constexpr nanoseconds kTooNew = kSettled - nanoseconds(1);
  EXPECT_TRUE(is_settled(stamp(kSettled, kSettled), kRead));
  EXPECT_FALSE(is_settled(stamp(kTooNew, kSettled), kRead));
  EXPECT_FALSE(is_settled(stamp(kSettled, kTooNew), kRead));
}

TEST(FileStamp, OfAFileFromTheFutureIsNotSettled) {
  EXPECT_FALSE(is_settled(stamp(seconds(-60), seconds(60)), kRead));
  EXPECT_FALSE(is_settled(stamp(seconds(60), seconds(-60)), kRead));
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

}  // namespace
}  // namespace kiln
