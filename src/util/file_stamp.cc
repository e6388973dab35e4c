#include "util/file_stamp.h"

namespace kiln {
namespace {

// Longer than a tick of any file system in use (FAT's two seconds are the coarsest).
constexpr std::chrono::seconds kSettleTime{2};

std::int64_t nanoseconds(const struct timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

FileStamp stamp_of(const struct stat& info) {
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .size = static_cast<std::uint64_t>(info.st_size),
          .mtime_ns = nanoseconds(info.st_mtim),
          .ctime_ns = nanoseconds(info.st_ctim)};
}

bool is_settled(const FileStamp& stamp, std::chrono::system_clock::time_point read_at) {
  const std::int64_t limit = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 (read_at - kSettleTime).time_since_epoch())
                                 .count();
  return stamp.mtime_ns <= limit && stamp.ctime_ns <= limit;
}

}  // namespace kiln
