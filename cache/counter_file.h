// <root>/counters: the counts of all processes that used this root, in one small text
// file; of a root that takes none, those of one user, in a folder of the node. A hint:
// it may be deleted at any time, and counting starts anew. Never used on a network file
// system. FORMAT.md, "Counters".
//
// If another user's file is in its place, a process keeps the count of that refusal
// itself: its own `stats` show it, and it is written once that file is gone.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "cache/file_system.h"
#include "cache/trust.h"
#include "kiln/result.h"

namespace kiln::cache {

/// Thread safety: every method may run concurrently, in any number of processes.
/// Fork safety: nothing is kept open between two calls.
class CounterFile {
 public:
  using Counts = std::map<std::string, std::uint64_t>;  // by name

  enum class Folder : std::uint8_t { kOfRoot, kOfNode };

  /// Opens nothing. The references must outlive this.
  CounterFile(std::filesystem::path path, FileSystem& file_system,
              const TrustPolicy& trust, Folder folder = Folder::kOfRoot);

  /// Its path. Makes the folder of the node. Errors: those of make_node_folder().
  [[nodiscard]] Result<std::filesystem::path> made() const;

  /// Adds, and saturates.
  [[nodiscard]] static Counts sum(Counts counts, const Counts& more);

  /// Adds `counts` to the file, or creates it, and the folder; sums saturate. After an
  /// error nothing was added. Waits at most `limit` for the lock, which other processes
  /// hold for microseconds. Errors: kUnavailable (no lock in time), kUntrusted (not a
  /// file of a trusted user), kIo.
  [[nodiscard]] Result<void> add(const Counts& counts, std::chrono::milliseconds limit);

  /// Empty if there is no file. If the lock is not free within `limit`, reads without
  /// it. Errors: kUntrusted, kIo.
  [[nodiscard]] Result<Counts> read(std::chrono::milliseconds limit);

 private:
  [[nodiscard]] tl::unexpected<Error> refused() const;
  [[nodiscard]] tl::unexpected<Error> open_error(int err) const;
  [[nodiscard]] Result<void> check(int fd) const;
  [[nodiscard]] Result<void> lock(int fd, std::chrono::milliseconds limit) const;
  void unlock(int fd) const;
  [[nodiscard]] Result<std::string> text(int fd) const;
  [[nodiscard]] Result<void> add_locked(int fd, const Counts& counts) const;

  const std::filesystem::path path_;
  FileSystem& file_system_;
  const TrustPolicy& trust_;
  const Folder folder_;
};

}  // namespace kiln::cache
