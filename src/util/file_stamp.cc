#include "util/file_stamp.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace kiln {
namespace {

constexpr std::array<std::uint64_t, 4> kReliable = {
    EXT4_SUPER_MAGIC,  // ext2 and ext3 have the same
    XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC};

bool is_on_reliable(int fd) {
  struct statfs info {};
  return ::fstatfs(fd, &info) == 0 &&
         std::ranges::find(kReliable, static_cast<std::uint32_t>(info.f_type)) !=
             kReliable.end();
}

std::int64_t nanoseconds(const struct timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Whether an open() that failed with this found nothing that may be read, as a compiler
// sees it. After any other error the file is there, and reading it will say what it is.
bool says_nothing_is_there(int error) {
  constexpr std::array<int, 5> kNothing = {ENOENT, ENOTDIR, ELOOP, EACCES, EPERM};
  return std::ranges::find(kNothing, error) != kNothing.end();
}

}  // namespace

FileStamp stamp_of(const struct stat& info) {
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .size = static_cast<std::uint64_t>(info.st_size),
          .mtime_ns = nanoseconds(info.st_mtim),
          .ctime_ns = nanoseconds(info.st_ctim)};
}

std::optional<FileStamp> stamp_of(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0)
    return std::nullopt;
  FileStamp stamp = stamp_of(info);
  stamp.reliable = is_on_reliable(fd);
  return stamp;
}

bool is_settled(const FileStamp& stamp, std::chrono::system_clock::time_point read_at,
                std::chrono::nanoseconds age) {
  const std::int64_t limit = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 (read_at - age).time_since_epoch())
                                 .count();
  return stamp.mtime_ns <= limit && stamp.ctime_ns <= limit;
}

std::optional<FileStamp> FileStamps::of_readable(const char* path) {
  // A name that is not there has no attributes: open() would be told the same.
  struct stat info {};
  if (::stat(path, &info) != 0 || !S_ISREG(info.st_mode))
    return std::nullopt;
  const FileStamp stamp = of(info, AT_FDCWD, path);
  if (stamp.reliable) {
    const bool may_read = (info.st_mode & S_IROTH) != 0 ||
                          ::faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) == 0;
    return may_read ? std::optional(stamp) : std::nullopt;
  }
  const UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd)
    return stamp_of(fd.get());
  return says_nothing_is_there(errno) ? std::nullopt : std::optional(stamp);
}

FileStamp FileStamps::below(int folder, const char* name) {
  struct stat info {};
  return ::fstatat(folder, name, &info, 0) == 0 ? of(info, folder, name) : FileStamp{};
}

FileStamp FileStamps::of(const struct stat& info, int folder, const char* name) {
  FileStamp stamp = stamp_of(info);
  if (!reliable_.contains(stamp.device) && !others_.contains(stamp.device)) {
    UniqueFd fd(::openat(folder, name, O_PATH | O_CLOEXEC));
    if (const auto opened = fd ? stamp_of(fd.get()) : std::nullopt) {
      if (opened->reliable)
        reliable_.emplace(opened->device, std::move(fd));
      else
        others_.insert(opened->device);
    }
  }
  stamp.reliable = reliable_.contains(stamp.device);
  return stamp;
}

}  // namespace kiln
