// The operating-system calls that the cache makes, behind one interface, so that tests
// can record them and make them fail. SQLite does its own I/O.

#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "util/bytes.h"

namespace kiln::cache {

/// Of a file that another user may replace by a link, which O_NOFOLLOW refuses, or a
/// FIFO, for which O_NONBLOCK does not wait.
inline constexpr int kNoLinkFlags = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

enum class RangeLock : std::uint8_t { kExclusive, kUnlock };

/// Thread safety: every call may run concurrently.
/// Each method is the system call of its name, restarted after EINTR where that is
/// safe. It returns the call's result or the negative errno; callers never read errno.
class FileSystem {
 public:
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  [[nodiscard]] virtual int open(const char* path, int flags, mode_t mode) = 0;
  [[nodiscard]] virtual ssize_t pread(int fd, std::byte* to, std::size_t size,
                                      std::uint64_t offset) = 0;
  [[nodiscard]] virtual ssize_t write(int fd, ByteView bytes) = 0;
  [[nodiscard]] virtual ssize_t pwrite(int fd, ByteView bytes,
                                       std::uint64_t offset) = 0;
  [[nodiscard]] virtual int fdatasync(int fd) = 0;
  [[nodiscard]] virtual int fchmod(int fd, mode_t mode) = 0;
  /// The descriptor is closed even if this returns an error.
  [[nodiscard]] virtual int close(int fd) = 0;
  [[nodiscard]] virtual int fstat(int fd, struct stat& info) = 0;
  [[nodiscard]] virtual int stat(const char* path, struct stat& info) = 0;
  [[nodiscard]] virtual int lstat(const char* path, struct stat& info) = 0;
  [[nodiscard]] virtual int link(const char* from, const char* to) = 0;
  [[nodiscard]] virtual int unlink(const char* path) = 0;
  [[nodiscard]] virtual int rename(const char* from, const char* to) = 0;
  /// renameat2 with RENAME_NOREPLACE.
  [[nodiscard]] virtual int rename_no_replace(const char* from, const char* to) = 0;
  /// The modification time becomes now; the access time stays.
  [[nodiscard]] virtual int touch(int fd) = 0;
  [[nodiscard]] virtual int mkdir(const char* path, mode_t mode) = 0;
  /// faccessat with AT_EACCESS and W_OK.
  [[nodiscard]] virtual int writable(const char* path) = 0;
  /// Names in a directory, unordered, without "." and "..". Returns 0 or the negative
  /// errno: -ENOTDIR also for a symbolic link to a directory.
  [[nodiscard]] virtual int list(const char* path, std::vector<std::string>& names) = 0;
  [[nodiscard]] virtual int readlink(const char* path, std::string& target) = 0;
  /// f_type of statfs, or the negative errno.
  [[nodiscard]] virtual std::int64_t type(const char* path) = 0;
  /// F_OFD_SETLK: never blocks; -EAGAIN if another lock covers a part of the range.
  [[nodiscard]] virtual int set_lock(int fd, RangeLock how, std::uint64_t offset,
                                     std::uint64_t size) = 0;
  /// F_OFD_GETLK: 1 if a lock of another file description covers a part of the range,
  /// which it then replaces with the range of one such lock; 0 if none does. -ENOSYS
  /// where a file system lacks it.
  [[nodiscard]] virtual int find_lock(int /*fd*/, std::uint64_t& /*offset*/,
                                      std::uint64_t& /*size*/) {
    return -ENOSYS;
  }

  // Access below one folder: `name` is resolved from there, not from the root. A file
  // system without these returns -ENOSYS from all of them.

  /// An O_PATH descriptor, for the calls below only.
  [[nodiscard]] virtual int hold_folder(const char* /*path*/) { return -ENOSYS; }
  [[nodiscard]] virtual int open_in(int /*folder*/, const char* /*name*/,
                                    int /*flags*/) {
    return -ENOSYS;
  }
  /// Does not follow a symbolic link.
  [[nodiscard]] virtual int stat_in(int /*folder*/, const char* /*name*/,
                                    struct stat& /*info*/) {
    return -ENOSYS;
  }
  [[nodiscard]] virtual int mkdir_in(int /*folder*/, const char* /*name*/,
                                     mode_t /*mode*/) {
    return -ENOSYS;
  }
};

/// The real one; never destroyed.
[[nodiscard]] FileSystem& real_file_system();

/// Writes all of `bytes`; 0 or the negative errno. A write of 0 bytes without an error
/// counts as -EIO.
[[nodiscard]] int write_all(FileSystem& file_system, int fd, ByteView bytes);

/// Reads `size` bytes, fewer where the file ends. Returns their number or the negative
/// errno.
[[nodiscard]] ssize_t pread_all(FileSystem& file_system, int fd, std::byte* to,
                                std::size_t size, std::uint64_t offset);

/// mkdir -p, each new folder 0700; 0 or the negative errno.
[[nodiscard]] int make_folders(FileSystem& file_system, const std::string& path);

/// "ext4", "tmpfs", "nfs"; "unknown, type 0x1234" for others. `type` is
/// FileSystem::type().
[[nodiscard]] std::string file_system_name(std::int64_t type);

/// True for file systems whose locks and shared memory cannot be relied on: NFS, SMB,
/// Lustre, GPFS, CephFS, AFS, 9p, FUSE and the like, and all that are unknown here.
/// `type` is FileSystem::type().
[[nodiscard]] bool is_network_type(std::int64_t type);

}  // namespace kiln::cache
