// A cheap test of whether a file is still the one that was read.
//
// A path is not a file: what it names may be another file at the next look. So a stamp
// that stands for bytes is that of the descriptor which they were read from.

#pragma once

#include <sys/stat.h>

#include <chrono>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "util/unique_fd.h"

namespace kiln {

/// Identity, size and both times. Where it is reliable, a change of content that keeps
/// size and mtime still moves ctime, which no program can set.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  /// On ext2 to ext4, xfs, btrfs or f2fs. Elsewhere it only shows that a file is
  /// another: images (squashfs, erofs) have the times of their making, FUSE and sshfs
  /// what a server says, network file systems what they remember, and an overlay
  /// reports one type whatever lies below.
  bool reliable = false;
  friend auto operator<=>(const FileStamp&, const FileStamp&) = default;
};

/// Not reliable: only a descriptor says on which file system it is.
[[nodiscard]] FileStamp stamp_of(const struct stat& info);
/// nullopt: it cannot be asked.
[[nodiscard]] std::optional<FileStamp> stamp_of(int fd);

/// A store through a shared mapping moves the times only if its page was clean: further
/// ones leave no trace until the kernel has written the page, half a minute later.
inline constexpr std::chrono::seconds kSettleTime{60};

/// Whether a file with this stamp, read at `read_at`, keeps its content as long as it
/// keeps the stamp, if that is reliable. False if mtime or ctime is less than `age`
/// before `read_at`. An age of two seconds is more than a tick of any file system's
/// clock: enough for files that nobody maps for writing.
[[nodiscard]] bool is_settled(const FileStamp& stamp,
                              std::chrono::system_clock::time_point read_at,
                              std::chrono::nanoseconds age = kSettleTime);

/// A file that somebody opened.
struct OpenedFile {
  std::filesystem::path path;
  std::optional<FileStamp> stamp;  // of his descriptor; nullopt: it is not known
  friend bool operator==(const OpenedFile&, const OpenedFile&) = default;
};

/// Takes stamps by name. Knows which devices are reliable, and keeps a descriptor on
/// each of those, so that its number is not another's meanwhile.
/// Thread safety: none.
class FileStamps {
 public:
  /// Of the regular file at `path` if this process may read it; nullopt: there is none.
  /// Where that is not reliable, of a descriptor: stat() may be answered from a cache
  /// of attributes, and a compiler's open() is not.
  [[nodiscard]] std::optional<FileStamp> of_readable(const char* path);
  /// Of what `name` in the open folder is, after links; zero if there is nothing.
  [[nodiscard]] FileStamp below(int folder, const char* name);
  /// Of what was found at that name.
  [[nodiscard]] FileStamp of(const struct stat& info, int folder, const char* name);

 private:
  std::map<std::uint64_t, UniqueFd> reliable_;  // by device
  std::set<std::uint64_t> others_;
};

}  // namespace kiln
