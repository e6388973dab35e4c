// A cache root below a folder that other users can write: they may rename what leads to
// it. So the root is opened once, component by component, and from then on reached
// through its descriptor: a rename causes a miss, and plants nothing.

#pragma once

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

  int open(const char* path, int flags, mode_t mode) override;
  ssize_t pread(int fd, std::byte* to, std::size_t size, std::uint64_t offset) override;
  ssize_t write(int fd, ByteView bytes) override;
  ssize_t pwrite(int fd, ByteView bytes, std::uint64_t offset) override;
  int fdatasync(int fd) override;
  int fchmod(int fd, mode_t mode) override;
  int close(int fd) override;
  int fstat(int fd, struct stat& info) override;
  int stat(const char* path, struct stat& info) override;
  int lstat(const char* path, struct stat& info) override;
  int link(const char* from, const char* to) override;
  int unlink(const char* path) override;
  int rename(const char* from, const char* to) override;
  int rename_no_replace(const char* from, const char* to) override;
  int touch(int fd) override;
  int mkdir(const char* path, mode_t mode) override;
  int writable(const char* path) override;
  int list(const char* path, std::vector<std::string>& names) override;
  int readlink(const char* path, std::string& target) override;
  std::int64_t type(const char* path) override;
  int set_lock(int fd, RangeLock how, std::uint64_t offset,
               std::uint64_t size) override;
  int find_lock(int fd, std::uint64_t& offset, std::uint64_t& size) override;
  int hold_folder(const char* path) override;
  int open_in(int folder, const char* name, int flags) override;
  int stat_in(int folder, const char* name, struct stat& info) override;
  int mkdir_in(int folder, const char* name, mode_t mode) override;

 private:
  template <typename Call>
  auto at(const char* path, const Call& call) -> decltype(call(path));

  HeldFileSystem(FileSystem& below, HeldFolder folder)
      : below_(below), folder_(std::move(folder)) {}

  FileSystem& below_;
  HeldFolder folder_;
};

}  // namespace kiln::cache
