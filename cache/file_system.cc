#include "cache/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <string_view>

#include "util/file_size_limit.h"

namespace kiln::cache {
namespace {

template <typename T>
T or_errno(T value) {
  return value < 0 ? static_cast<T>(-errno) : value;
}

template <typename Call>
auto restarted(Call call) {
  auto value = or_errno(call());
  while (value == -EINTR) value = or_errno(call());
  return value;
}

/// Of an unknown file system the worst is assumed: that costs an index and shared
/// locks, where the opposite mistake costs a damaged index.
enum class Where : std::uint8_t { kLocal, kNetwork };
struct Known {
  std::int64_t type;
  std::string_view name;
  Where where;
};

// Values of statfs(2), linux/magic.h, and the file systems' own sources.
constexpr std::array kKnown{
    Known{0x6969, "nfs", Where::kNetwork},
    Known{0x517B, "smb", Where::kNetwork},
    Known{0xFF534D42, "cifs", Where::kNetwork},
    Known{0xFE534D42, "smb2", Where::kNetwork},
    Known{0x564C, "ncp", Where::kNetwork},
    Known{0x0BD00BD0, "lustre", Where::kNetwork},
    Known{0x0BD00BD1, "lustre", Where::kNetwork},  // older
    Known{0x47504653, "gpfs", Where::kNetwork},
    Known{0x00C36400, "ceph", Where::kNetwork},
    Known{0x65735546, "fuse", Where::kNetwork},  // what is behind it is unknown
    Known{0x01021997, "9p", Where::kNetwork},    // virtio file sharing, too
    Known{0x5346414F, "afs", Where::kNetwork},   // OpenAFS
    Known{0x6B414653, "afs", Where::kNetwork},   // kAFS
    Known{0x73757245, "coda", Where::kNetwork},
    Known{0x19830326, "beegfs", Where::kNetwork},
    Known{0x7461636F, "ocfs2", Where::kNetwork},
    Known{0x01161970, "gfs2", Where::kNetwork},
    Known{0xAAD7AAEA, "panfs", Where::kNetwork},
    Known{0x786F4256, "vboxsf", Where::kNetwork},
    Known{0xBACBACBC, "vmhgfs", Where::kNetwork},
    Known{0xEF53, "ext4", Where::kLocal},  // ext2 and ext3 as well
    Known{0x58465342, "xfs", Where::kLocal},
    Known{0x9123683E, "btrfs", Where::kLocal},
    Known{0x2FC12FC1, "zfs", Where::kLocal},
    Known{0xCA451A4E, "bcachefs", Where::kLocal},
    Known{0xF2F52010, "f2fs", Where::kLocal},
    Known{0x3153464A, "jfs", Where::kLocal},
    Known{0x52654973, "reiserfs", Where::kLocal},
    Known{0x01021994, "tmpfs", Where::kLocal},
    Known{0x858458F6, "ramfs", Where::kLocal},
    Known{0x794C7630, "overlayfs", Where::kLocal},
    Known{0xF15F, "ecryptfs", Where::kLocal},
    Known{0x73717368, "squashfs", Where::kLocal},
    Known{0xE0F5E1E2, "erofs", Where::kLocal},
    Known{0x9660, "iso9660", Where::kLocal},
    Known{0x15013346, "udf", Where::kLocal},
    Known{0x3434, "nilfs2", Where::kLocal},
    Known{0x24051905, "ubifs", Where::kLocal},
    Known{0x72B6, "jffs2", Where::kLocal},
    Known{0x52345362, "reiser4", Where::kLocal},
    Known{0x61756673, "aufs", Where::kLocal},
    Known{0x6A656A62, "shiftfs", Where::kLocal},
    Known{0x482B, "hfsplus", Where::kLocal},
    Known{0x4D44, "vfat", Where::kLocal},
    Known{0x2011BAB0, "exfat", Where::kLocal},
    Known{0x7366746E, "ntfs", Where::kLocal},
};

const Known* find_known(std::int64_t type) {
  const auto* const found = std::ranges::find(kKnown, type, &Known::type);
  return found == kKnown.end() ? nullptr : found;
}

class RealFileSystem final : public FileSystem {
 public:
  int open(const char* path, int flags, mode_t mode) override {
    return restarted([&] { return ::open(path, flags | O_CLOEXEC, mode); });
  }
  ssize_t pread(int fd, std::byte* to, std::size_t size,
                std::uint64_t offset) override {
    return restarted([&] { return ::pread(fd, to, size, static_cast<off_t>(offset)); });
  }
  ssize_t write(int fd, ByteView bytes) override {
    return restarted([&] {
      return without_file_size_signal(
          [&] { return ::write(fd, bytes.data(), bytes.size()); });
    });
  }
  ssize_t pwrite(int fd, ByteView bytes, std::uint64_t offset) override {
    return restarted([&] {
      return without_file_size_signal([&] {
        return ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      });
    });
  }
  // Not restarted: after a failed sync the kernel forgets which pages were lost.
  int fdatasync(int fd) override { return or_errno(::fdatasync(fd)); }
  int fchmod(int fd, mode_t mode) override { return or_errno(::fchmod(fd, mode)); }
  // Not restarted: Linux closes the descriptor even if it reports an error.
  int close(int fd) override { return or_errno(::close(fd)); }
  int fstat(int fd, struct stat& info) override { return or_errno(::fstat(fd, &info)); }
  int stat(const char* path, struct stat& info) override {
    return or_errno(::stat(path, &info));
  }
  int lstat(const char* path, struct stat& info) override {
    return or_errno(::lstat(path, &info));
  }
  int link(const char* from, const char* to) override {
    return or_errno(::link(from, to));
  }
  int unlink(const char* path) override { return or_errno(::unlink(path)); }
  int rename(const char* from, const char* to) override {
    return or_errno(::rename(from, to));
  }
  int rename_no_replace(const char* from, const char* to) override {
    return or_errno(::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE));
  }
  int touch(int fd) override {
    const std::array<timespec, 2> times{{{0, UTIME_OMIT}, {0, UTIME_NOW}}};
    return or_errno(::futimens(fd, times.data()));
  }
  int mkdir(const char* path, mode_t mode) override {
    return or_errno(::mkdir(path, mode));
  }
  int writable(const char* path) override {
    return or_errno(::faccessat(AT_FDCWD, path, W_OK, AT_EACCESS));
  }
  int list(const char* path, std::vector<std::string>& names) override {
    // O_NOFOLLOW: another user may have put a link in place of the folder.
    const int fd =
        or_errno(::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (fd < 0)
      return fd;
    DIR* const folder = ::fdopendir(fd);
    if (folder == nullptr) {
      const int err = errno;
      ::close(fd);
      return -err;
    }
    names.clear();
    int err = 0;
    for (;;) {
      errno = 0;
      const dirent* const entry = ::readdir(folder);  // NOLINT(concurrency-mt-unsafe):
      // safe for a stream of our own
      if (entry == nullptr) {
        err = errno;
        break;
      }
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..")
        names.emplace_back(name);
    }
    ::closedir(folder);
    return -err;
  }
  int readlink(const char* path, std::string& target) override {
    std::array<char, PATH_MAX> text{};
    const ssize_t n = ::readlink(path, text.data(), text.size());
    if (n < 0)
      return -errno;
    target.assign(text.data(), static_cast<std::size_t>(n));
    return 0;
  }
  std::int64_t type(const char* path) override {
    struct statfs info {};
    const int done = restarted([&] { return ::statfs(path, &info); });
    // The magic is 32 bits wide and sign-extended on some machines.
    return done < 0 ? done
                    : static_cast<std::int64_t>(
                          static_cast<std::uint32_t>(info.f_type & 0xFFFFFFFF));
  }
  int set_lock(int fd, RangeLock how, std::uint64_t offset,
               std::uint64_t size) override {
    struct flock range {};
    range.l_type = how == RangeLock::kExclusive ? F_WRLCK : F_UNLCK;
    range.l_whence = SEEK_SET;
    range.l_start = static_cast<off_t>(offset);
    range.l_len = static_cast<off_t>(size);
    return restarted([&] { return ::fcntl(fd, F_OFD_SETLK, &range); });
  }
  int find_lock(int fd, std::uint64_t& offset, std::uint64_t& size) override {
    struct flock range {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_start = static_cast<off_t>(offset);
    range.l_len = static_cast<off_t>(size);
    const int done = restarted([&] { return ::fcntl(fd, F_OFD_GETLK, &range); });
    if (done < 0 || range.l_type == F_UNLCK)
      return done;
    offset = static_cast<std::uint64_t>(range.l_start);
    size = static_cast<std::uint64_t>(range.l_len);
    return 1;
  }
  int hold_folder(const char* path) override {
    return or_errno(::open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  int open_in(int folder, const char* name, int flags) override {
    return restarted([&] { return ::openat(folder, name, flags | O_CLOEXEC); });
  }
  int stat_in(int folder, const char* name, struct stat& info) override {
    return or_errno(::fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW));
  }
  int mkdir_in(int folder, const char* name, mode_t mode) override {
    return or_errno(::mkdirat(folder, name, mode));
  }
};

}  // namespace

FileSystem& real_file_system() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): has no state
  static auto* const instance = new RealFileSystem;
  return *instance;
}

int write_all(FileSystem& file_system, int fd, ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t n = file_system.write(fd, bytes);
    if (n < 0)
      return static_cast<int>(n);
    if (n == 0)
      return -EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

ssize_t pread_all(FileSystem& file_system, int fd, std::byte* to, std::size_t size,
                  std::uint64_t offset) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = file_system.pread(fd, to + done, size - done, offset + done);
    if (n < 0)
      return n;
    if (n == 0)
      break;
    done += static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

int make_folders(FileSystem& file_system, const std::string& path) {
  const int made = file_system.mkdir(path.c_str(), 0700);
  if (made == 0 || made == -EEXIST)
    return 0;
  const std::size_t slash = path.find_last_of('/');
  if (made != -ENOENT || slash == std::string::npos || slash == 0)
    return made;
  if (const int err = make_folders(file_system, path.substr(0, slash)); err != 0)
    return err;
  const int again = file_system.mkdir(path.c_str(), 0700);
  return again == -EEXIST ? 0 : again;
}

std::string file_system_name(std::int64_t type) {
  const Known* const known = find_known(type);
  return known != nullptr ? std::string(known->name)
                          : fmt::format("unknown, type {:#x}", type);
}

bool is_network_type(std::int64_t type) {
  const Known* const known = find_known(type);
  return known == nullptr || known->where == Where::kNetwork;
}

}  // namespace kiln::cache
