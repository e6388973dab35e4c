// The real file system, recorded, with calls that fail on request.

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/file_system.h"
#include "util/mutex.h"

namespace kiln::test {

/// Thread safety: set the hooks before other threads call.
class FaultyFileSystem : public cache::FileSystem {
 public:
  /// Asked before each call with its name and its number, from 0, among all calls.
  /// 0: go on; a negative errno: fail with it, the real call not made.
  std::function<int(std::string_view call, int number)> before = [](auto, int) {
    return 0;
  };
  /// Asked after each call that went well; a negative errno replaces its result.
  std::function<int(std::string_view call, int number)> after = [](auto, int) {
    return 0;
  };
  /// May change what stat, lstat and fstat report.
  std::function<void(std::string_view path, struct stat&)> on_stat = [](auto, auto&) {};
  /// What type() reports for a path, 0 for the truth.
  std::function<std::int64_t(std::string_view path)> on_type = [](auto) {
    return std::int64_t{0};
  };

  /// Every call of that name, from now on.
  void fail(std::string_view name, int error) {
    before = [=](std::string_view call, int) { return call == name ? -error : 0; };
  }

  [[nodiscard]] std::vector<std::string> calls() const {
    const MutexLock lock(mutex_);
    return calls_;
  }
  void forget_calls() {
    const MutexLock lock(mutex_);
    calls_.clear();
  }

  int open(const char* path, int flags, mode_t mode) override {
    return through("open", [&] { return real_.open(path, flags, mode); });
  }
  ssize_t pread(int fd, std::byte* to, std::size_t size, std::uint64_t at) override {
    return through("pread", [&] { return real_.pread(fd, to, size, at); });
  }
  ssize_t write(int fd, ByteView bytes) override {
    return through("write", [&] { return real_.write(fd, bytes); });
  }
  ssize_t pwrite(int fd, ByteView bytes, std::uint64_t at) override {
    return through("pwrite", [&] { return real_.pwrite(fd, bytes, at); });
  }
  int fdatasync(int fd) override {
    return through("fdatasync", [&] { return real_.fdatasync(fd); });
  }
  int fchmod(int fd, mode_t mode) override {
    return through("fchmod", [&] { return real_.fchmod(fd, mode); });
  }
  int close(int fd) override {
    // The descriptor is gone even where close reports an error.
    const int closed = real_.close(fd);
    return through("close", [&] { return closed; });
  }
  int fstat(int fd, struct stat& info) override {
    return through("fstat", [&] { return adjusted(real_.fstat(fd, info), "", info); });
  }
  int stat(const char* path, struct stat& info) override {
    return through("stat",
                   [&] { return adjusted(real_.stat(path, info), path, info); });
  }
  int lstat(const char* path, struct stat& info) override {
    return through("lstat",
                   [&] { return adjusted(real_.lstat(path, info), path, info); });
  }
  int link(const char* from, const char* to) override {
    return through("link", [&] { return real_.link(from, to); });
  }
  int unlink(const char* path) override {
    return through("unlink", [&] { return real_.unlink(path); });
  }
  int rename(const char* from, const char* to) override {
    return through("rename", [&] { return real_.rename(from, to); });
  }
  int rename_no_replace(const char* from, const char* to) override {
    return through("rename_no_replace",
                   [&] { return real_.rename_no_replace(from, to); });
  }
  int touch(int fd) override {
    return through("touch", [&] { return real_.touch(fd); });
  }
  int mkdir(const char* path, mode_t mode) override {
    return through("mkdir", [&] { return real_.mkdir(path, mode); });
  }
  int writable(const char* path) override {
    return through("writable", [&] { return real_.writable(path); });
  }
  int list(const char* path, std::vector<std::string>& names) override {
    return through("list", [&] { return real_.list(path, names); });
  }
  int readlink(const char* path, std::string& target) override {
    return through("readlink", [&] { return real_.readlink(path, target); });
  }
  std::int64_t type(const char* path) override {
    const std::int64_t told = on_type(path);
    return through("type", [&] { return told != 0 ? told : real_.type(path); });
  }
  int set_lock(int fd, cache::RangeLock how, std::uint64_t at,
               std::uint64_t size) override {
    return through("set_lock", [&] { return real_.set_lock(fd, how, at, size); });
  }
  int find_lock(int fd, std::uint64_t& at, std::uint64_t& size) override {
    return through("find_lock", [&] { return real_.find_lock(fd, at, size); });
  }

 private:
  template <typename Call>
  auto through(const char* name, const Call& call) -> decltype(call()) {
    const int number = record(name);
    if (const int err = before(name, number); err != 0)
      return err;
    const auto result = call();
    if (result < 0)
      return result;
    const int err = after(name, number);
    return err != 0 ? static_cast<decltype(result)>(err) : result;
  }

  int record(const char* name) {
    const MutexLock lock(mutex_);
    calls_.emplace_back(name);
    return static_cast<int>(calls_.size()) - 1;
  }

  int adjusted(int result, std::string_view path, struct stat& info) {
    if (result == 0)
      on_stat(path, info);
    return result;
  }

  cache::FileSystem& real_ = cache::real_file_system();
  mutable Mutex mutex_;
  std::vector<std::string> calls_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::test
