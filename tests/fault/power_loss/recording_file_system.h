// A file system that does what the one below it does, and writes down what changes what
// lies below one folder. What the model cannot express fails the test.

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/file_system.h"
#include "tests/fault/power_loss/disk.h"
#include "tests/fault/power_loss/operation.h"
#include "util/mutex.h"

namespace kiln::test {

enum class Syncs : std::uint8_t {
  kDone,
  kDropped,  // each fdatasync says that it went well, and nothing was synced
};

/// Thread safety: every call may run concurrently; those that change something take
/// turns.
class RecordingFileSystem final : public cache::FileSystem {
 public:
  /// What lies below `root` now counts as durable. `below` must outlive this.
  explicit RecordingFileSystem(std::filesystem::path root, Syncs syncs = Syncs::kDone,
                               cache::FileSystem& below = cache::real_file_system());

  [[nodiscard]] const Disk& before() const { return before_; }
  [[nodiscard]] Log log() const;
  /// The caller of a publish has been told that this object is stored.
  void acknowledge(int object);

  int open(const char* path, int flags, mode_t mode) override;
  ssize_t write(int fd, ByteView bytes) override;
  ssize_t pwrite(int fd, ByteView bytes, std::uint64_t offset) override;
  int fdatasync(int fd) override;
  int fchmod(int fd, mode_t mode) override;
  int close(int fd) override;
  int link(const char* from, const char* to) override;
  int unlink(const char* path) override;
  int rename(const char* from, const char* to) override;
  int rename_no_replace(const char* from, const char* to) override;
  int touch(int fd) override;
  int mkdir(const char* path, mode_t mode) override;

  ssize_t pread(int fd, std::byte* to, std::size_t size, std::uint64_t at) override {
    return below_.pread(fd, to, size, at);
  }
  int fstat(int fd, struct stat& info) override { return below_.fstat(fd, info); }
  int stat(const char* path, struct stat& info) override {
    return below_.stat(path, info);
  }
  int lstat(const char* path, struct stat& info) override {
    return below_.lstat(path, info);
  }
  int writable(const char* path) override { return below_.writable(path); }
  int list(const char* path, std::vector<std::string>& names) override {
    return below_.list(path, names);
  }
  int readlink(const char* path, std::string& target) override {
    return below_.readlink(path, target);
  }
  std::int64_t type(const char* path) override { return below_.type(path); }
  int set_lock(int fd, cache::RangeLock how, std::uint64_t at,
               std::uint64_t size) override {
    return below_.set_lock(fd, how, at, size);
  }
  int hold_folder(const char* path) override { return below_.hold_folder(path); }
  int open_in(int folder, const char* name, int flags) override {
    return below_.open_in(folder, name, flags);
  }
  int stat_in(int folder, const char* name, struct stat& info) override {
    return below_.stat_in(folder, name, info);
  }

 private:
  struct Opened {
    std::optional<FileNumber> file;  // none: a folder
    std::string name;
    std::uint64_t offset = 0;
  };

  [[nodiscard]] std::optional<std::string> relative(const char* path) const;
  void note_open(int fd, const std::string& name, bool is_new) KILN_REQUIRES(mutex_);
  [[nodiscard]] FileNumber number_of(const char* path, const std::string& name)
      KILN_REQUIRES(mutex_);
  void note_written(int fd, ByteView bytes, std::uint64_t offset) KILN_REQUIRES(mutex_);
  [[nodiscard]] int note_rename(const char* from, const char* to,
                                int (FileSystem::*call)(const char*, const char*));

  const std::filesystem::path root_;
  const Syncs syncs_;
  cache::FileSystem& below_;
  const Disk before_;

  mutable Mutex mutex_;
  Log log_ KILN_GUARDED_BY(mutex_);
  std::map<int, Opened> opened_ KILN_GUARDED_BY(mutex_);         // by descriptor
  std::map<ino_t, FileNumber> numbers_ KILN_GUARDED_BY(mutex_);  // inodes are reused
  FileNumber next_ KILN_GUARDED_BY(mutex_) = FileNumber{1} << 63U;
};

}  // namespace kiln::test
