// A cache root below a folder that other users can write: they may rename what leads to
// it. So the root is opened once, component by component, and from then on reached
// through its descriptor: a rename causes a miss, and plants nothing.

#pragma once

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "cache/file_system.h"
#include "cache/trust.h"
#include "kiln/result.h"
#include "util/kept_fd.h"

namespace kiln::cache {

struct HeldFolder {
  KeptFd fd;
  std::filesystem::path path;  // as a person knows it
};

/// Opens `path`, where TrustPolicy::walk() refused a folder on the way, or `path`
/// itself, because others can write it: itself, if only trusted users can write it,
/// else its folder kiln-<uid>. Follows no link from the refused folder on; each folder
/// must belong to a trusted user. With `make` makes what is missing, 0700. Errors:
/// kNotFound, without `make`; kUntrusted; kUnavailable, without /proc; kIo.
[[nodiscard]] Result<HeldFolder> hold(FileSystem& file_system, const TrustPolicy& trust,
                                      const std::filesystem::path& path, bool make);

/// `below`, but paths in a held folder are reached through its descriptor. Where the
/// host has closed that, they fail with -EBADF.
/// Thread safety: no call may run beside let_go().
class HeldFileSystem final : public FileSystem {
 public:
  /// Never destroyed: whoever holds a lock or a descriptor by it may live on.
  [[nodiscard]] static HeldFileSystem& make(FileSystem& below, HeldFolder folder);

  /// Closes the descriptor. Paths in the folder then fail with -EBADF.
  void let_go() { folder_.fd.reset(); }
  [[nodiscard]] FileSystem& below() const { return below_; }
  /// Where this process finds `path`: /proc/self/fd/N/… in the held folder. Other
  /// processes have other descriptors.
  [[nodiscard]] std::string reach(const std::string& path) const;

  int open(const char* path, int flags, mode_t mode) override {
    return at(path, [&](const char* p) { return below_.open(p, flags, mode); });
  }
  ssize_t pread(int fd, std::byte* to, std::size_t size,
                std::uint64_t offset) override {
    return below_.pread(fd, to, size, offset);
  }
  ssize_t write(int fd, ByteView bytes) override { return below_.write(fd, bytes); }
  ssize_t pwrite(int fd, ByteView bytes, std::uint64_t offset) override {
    return below_.pwrite(fd, bytes, offset);
  }
  int fdatasync(int fd) override { return below_.fdatasync(fd); }
  int fchmod(int fd, mode_t mode) override { return below_.fchmod(fd, mode); }
  int close(int fd) override { return below_.close(fd); }
  int fstat(int fd, struct stat& info) override { return below_.fstat(fd, info); }
  int stat(const char* path, struct stat& info) override {
    return at(path, [&](const char* p) { return below_.stat(p, info); });
  }
  int lstat(const char* path, struct stat& info) override {
    return at(path, [&](const char* p) { return below_.lstat(p, info); });
  }
  int link(const char* from, const char* to) override {
    return at(from, to, [&](auto f, auto t) { return below_.link(f, t); });
  }
  int unlink(const char* path) override {
    return at(path, [&](const char* p) { return below_.unlink(p); });
  }
  int rename(const char* from, const char* to) override {
    return at(from, to, [&](auto f, auto t) { return below_.rename(f, t); });
  }
  int rename_no_replace(const char* from, const char* to) override {
    return at(from, to, [&](auto f, auto t) { return below_.rename_no_replace(f, t); });
  }
  int touch(int fd) override { return below_.touch(fd); }
  int mkdir(const char* path, mode_t mode) override {
    return at(path, [&](const char* p) { return below_.mkdir(p, mode); });
  }
  int writable(const char* path) override {
    return at(path, [&](const char* p) { return below_.writable(p); });
  }
  int list(const char* path, std::vector<std::string>& names) override {
    return at(path, [&](const char* p) { return below_.list(p, names); });
  }
  int readlink(const char* path, std::string& target) override {
    return at(path, [&](const char* p) { return below_.readlink(p, target); });
  }
  std::int64_t type(const char* path) override {
    return at(path, [&](const char* p) { return below_.type(p); });
  }
  int set_lock(int fd, RangeLock how, std::uint64_t offset,
               std::uint64_t size) override {
    return below_.set_lock(fd, how, offset, size);
  }
  int find_lock(int fd, std::uint64_t& offset, std::uint64_t& size) override {
    return below_.find_lock(fd, offset, size);
  }
  int hold_folder(const char* path) override {
    return at(path, [&](const char* p) { return below_.hold_folder(p); });
  }
  int open_in(int folder, const char* name, int flags) override {
    return below_.open_in(folder, name, flags);
  }
  int stat_in(int folder, const char* name, struct stat& info) override {
    return below_.stat_in(folder, name, info);
  }
  int mkdir_in(int folder, const char* name, mode_t mode) override {
    return below_.mkdir_in(folder, name, mode);
  }

 private:
  /// The part of `path` behind the folder, "" or from a slash on; nullptr: it is not
  /// there.
  [[nodiscard]] const char* behind(const char* path) const;
  template <typename Call>
  auto at(const char* path, const Call& call) -> decltype(call(path)) {
    if (behind(path) == nullptr)
      return call(path);
    if (!folder_.fd || !folder_.fd.is_ours())
      return -EBADF;
    return call(reach(path).c_str());
  }
  template <typename Call>
  int at(const char* from, const char* to, const Call& call) {
    return at(from, [&](const char* f) {
      return at(to, [&](const char* t) { return call(f, t); });
    });
  }

  HeldFileSystem(FileSystem& below, HeldFolder folder)
      : below_(below), folder_(std::move(folder)) {}

  FileSystem& below_;
  HeldFolder folder_;
};

}  // namespace kiln::cache
