// A file system in which every call fails, for targets that need few of them.

#pragma once

#include <cerrno>
#include <string>
#include <vector>

#include "cache/file_system.h"

namespace kiln::fuzz {

class NoFileSystem : public cache::FileSystem {
 public:
  int open(const char*, int, mode_t) override { return -ENOSYS; }
  ssize_t pread(int, std::byte*, std::size_t, std::uint64_t) override {
    return -ENOSYS;
  }
  ssize_t write(int, ByteView) override { return -ENOSYS; }
  ssize_t pwrite(int, ByteView, std::uint64_t) override { return -ENOSYS; }
  int fdatasync(int) override { return -ENOSYS; }
  int fchmod(int, mode_t) override { return -ENOSYS; }
  int close(int) override { return -ENOSYS; }
  int fstat(int, struct stat&) override { return -ENOSYS; }
  int stat(const char*, struct stat&) override { return -ENOSYS; }
  int lstat(const char*, struct stat&) override { return -ENOSYS; }
  int link(const char*, const char*) override { return -ENOSYS; }
  int unlink(const char*) override { return -ENOSYS; }
  int rename(const char*, const char*) override { return -ENOSYS; }
  int rename_no_replace(const char*, const char*) override { return -ENOSYS; }
  int touch(int) override { return -ENOSYS; }
  int mkdir(const char*, mode_t) override { return -ENOSYS; }
  int writable(const char*) override { return -ENOSYS; }
  int list(const char*, std::vector<std::string>&) override { return -ENOSYS; }
  int readlink(const char*, std::string&) override { return -ENOSYS; }
  std::int64_t type(const char*) override { return -ENOSYS; }
  int set_lock(int, cache::RangeLock, std::uint64_t, std::uint64_t) override {
    return -ENOSYS;
  }
};

}  // namespace kiln::fuzz
