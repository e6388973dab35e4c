// A cheap test of whether a file is still the one that was read.

#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>

namespace kiln {

/// Identity, size and both times. A change of content that keeps size and mtime still
/// moves ctime, which no program can set.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

[[nodiscard]] FileStamp stamp_of(const struct stat& info);

/// Whether a file with this stamp, read at `read_at`, keeps its content as long as it
/// keeps the stamp. False if mtime or ctime is less than two seconds before `read_at`:
/// a later write in the same tick of the file system's clock would leave no trace.
[[nodiscard]] bool is_settled(const FileStamp& stamp,
                              std::chrono::system_clock::time_point read_at);

}  // namespace kiln
