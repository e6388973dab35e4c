// An exclusive lock on a byte range of a lock file: an OFD lock, which the system ends
// with its holder. FORMAT.md, "Locks".

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "cache/file_system.h"
#include "kiln/result.h"

namespace kiln::cache {

/// Held until it is released or destroyed.
/// Thread safety: one thread at a time; write() may run beside held() and other writes.
/// Fork safety: in a forked child it holds nothing and releases nothing; the child's
/// copy of the descriptor is closed, so that the lock ends with the parent. A fork
/// waits for no call of the file system.
class FileLock {
 public:
  struct Range {
    FileSystem* file_system;
    std::filesystem::path file;
    std::uint64_t offset;
    std::uint64_t bytes;
  };

  FileLock() = default;

  /// One attempt; never blocks. nullopt if another process or thread holds a part of
  /// the range. Creates the file. Errors: kUnavailable if the file system has no locks;
  /// kUntrusted for a file that is not ours alone; kIo.
  [[nodiscard]] static Result<std::optional<FileLock>> try_lock(const Range& range);

  /// False also if the host has closed the descriptor, which ended the lock.
  [[nodiscard]] bool held() const;

  /// The range of a lock that somebody else holds within `bytes` bytes from `offset` of
  /// this lock's file. nullopt: there is none, or the file system cannot tell.
  struct Other {
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  [[nodiscard]] std::optional<Other> other(std::uint64_t offset,
                                           std::uint64_t bytes) const;

  /// Reads from or writes to the file, from the start of the range + `offset`. Best
  /// effort: what lock files hold are hints.
  [[nodiscard]] bool read(std::byte* to, std::size_t size, std::uint64_t offset) const;
  void write(ByteView bytes, std::uint64_t offset) const;

  void release() noexcept { held_.reset(); }

 private:
  struct Held;
  struct Release {
    void operator()(Held* held) const noexcept;
  };
  class Registry;
  using Opened = std::unique_ptr<Held, Release>;

  [[nodiscard]] static Result<Opened> open(const Range& range);

  Opened held_;
};

/// Opens a lock file to read what its holders wrote; -1 if there is none.
[[nodiscard]] int open_lock_file_to_read(FileSystem& files,
                                         const std::filesystem::path& file);

}  // namespace kiln::cache
