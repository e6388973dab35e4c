// <root>/counters: what all processes that used this root counted, in one small text
// file. A hint: deletable at any time, and then counting begins anew. Never used on a
// network file system. FORMAT.md, "Counters".
//
// That another's file lies in its place nobody can write down there: whoever is refused
// counts it for himself, so that `stats` says it, and writes it once the file has gone.

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "cache/file_system.h"
#include "cache/layout.h"
#include "cache/trust.h"
#include "kiln/result.h"

namespace kiln::cache {

/// Thread safety: every method may run concurrently, in any number of processes.
/// Fork safety: nothing is kept open between two calls.
class CounterFile {
 public:
  using Counts = std::map<std::string, std::uint64_t>;  // by name

  /// Opens nothing. The references must outlive this.
  CounterFile(const Layout& layout, FileSystem& file_system, const TrustPolicy& trust);

  /// Adds to what is there, or makes the file; a sum stays at its largest value. After
  /// an error nothing was added. Waits at most `limit` for others to finish; each takes
  /// some microseconds. Errors: kUnavailable (others held it for longer), kUntrusted
  /// (it is not a file of a trusted user), kIo.
  [[nodiscard]] Result<void> add(const Counts& counts, std::chrono::milliseconds limit);

  /// None where there is no file. One that is held for longer than `limit` is read as
  /// it stands. Errors: kUntrusted, kIo.
  [[nodiscard]] Result<Counts> read(std::chrono::milliseconds limit);

 private:
  [[nodiscard]] tl::unexpected<Error> refused() const;
  [[nodiscard]] tl::unexpected<Error> open_error(int err) const;
  [[nodiscard]] Result<void> check(int fd) const;
  [[nodiscard]] Result<void> lock(int fd, std::chrono::milliseconds limit) const;
  void unlock(int fd) const;
  [[nodiscard]] Result<std::string> text(int fd) const;
  [[nodiscard]] Result<void> add_locked(int fd, const Counts& counts) const;

  const std::string path_;
  FileSystem& file_system_;
  const TrustPolicy& trust_;
};

}  // namespace kiln::cache
