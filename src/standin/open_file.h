// An open file of the audit module, and what it writes: with no library but libc.

#pragma once

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

namespace kiln::standin {

/// Closed with it. Not open: fd() is negative, and the other functions say no.
class OpenFile {
 public:
  OpenFile() = default;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd_ >= 0)
      close(fd_);
  }

  void open(int folder, const char* name, int flags) {
    fd_ = openat(folder, name, flags, S_IRUSR | S_IWUSR | S_IXUSR);
    is_known_ = fd_ >= 0 && fstat(fd_, &status_) == 0;
  }
  void open(const char* path, int flags) { open(AT_FDCWD, path, flags); }

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] const struct stat* stat() const {
    return is_known_ ? &status_ : nullptr;
  }
  /// Writes the path, without links, to PATH_MAX bytes.
  [[nodiscard]] bool path(char* path) const {
    char link[32];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd_);
    const ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0 || length == PATH_MAX - 1)
      return false;
    path[length] = '\0';
    struct stat found {};  // the path of one that was removed ends with "(deleted)"
    return is_known_ && lstat(path, &found) == 0 && found.st_ino == status_.st_ino &&
           found.st_dev == status_.st_dev;
  }

 private:
  int fd_ = -1;
  bool is_known_ = false;
  struct stat status_ {};
};

[[nodiscard]] inline bool write_all(int fd, const unsigned char* bytes,
                                    std::size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, bytes, size);
    if (written <= 0)
      return false;
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

}  // namespace kiln::standin
