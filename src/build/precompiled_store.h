// Precompiled headers beside the objects of a cache root: cache/FORMAT.md,
// "Precompiled headers". They only save time: one that is missing, damaged, somebody
// else's or in the way is none. Knows names and files, not what a compiler makes of
// them.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "cache/trim.h"
#include "codec/digest.h"
#include "compile/protocol/job.h"
#include "kiln/result.h"
#include "util/own_path.h"

namespace kiln {

struct PrecompiledTotals {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
};

/// Thread safety: every method may run concurrently, in any number of processes.
class PrecompiledStore {
 public:
  struct Stored {
    compile::PrecompiledFile file;  // the bytes are not looked at
    compile::FileReport files;      // opened and missed when it was made
  };

  /// `folder` is `<root>/pch`; it need not exist.
  PrecompiledStore(OwnFolder folder, std::uint64_t limit_bytes);

  /// One that was published under this key and not removed; counts as its use.
  [[nodiscard]] std::optional<Stored> find(const Digest& key) const;

  /// Notes that one would pay; nothing if this key was refused within a week, or taken
  /// within ten minutes.
  void want(const Digest& key) const;
  /// True for one caller among all processes after each want(): it makes it, and then
  /// calls publish(), refuse() or release(), or leaves it alone for ten minutes.
  [[nodiscard]] bool take_wanted(const Digest& key) const;
  /// The next may make it at once.
  void release(const Digest& key) const;
  void remove(const Digest& key) const;
  /// Removes it, and lets nobody make it for a week.
  void refuse(const Digest& key) const;

  /// A path for a new file in a folder of its own. Errors: kIo; kResourceLimit if the
  /// file system has no room for a large one.
  [[nodiscard]] Result<std::filesystem::path> new_file() const;
  /// Moves what was made to its name, all or nothing, unless another process was
  /// faster; then removes those least recently used, above the limit. Errors: kIo,
  /// kResourceLimit for one that is over the limit by itself.
  [[nodiscard]] Result<void> publish(const Digest& key, const Stored& made) const;
  /// Removes what new_file() made.
  void discard(const std::filesystem::path& file) const;

  /// With the bytes of those that are not finished.
  [[nodiscard]] PrecompiledTotals totals() const;
  /// Removes those least recently used, above the limit, and what was left unfinished
  /// an hour ago; returns what the former were.
  [[nodiscard]] PrecompiledTotals trim(
      cache::DryRun dry_run = cache::DryRun::kNo) const;
  /// Removes everything; returns what that was.
  [[nodiscard]] PrecompiledTotals clear() const;

 private:
  [[nodiscard]] std::filesystem::path marker(const Digest& key,
                                             const char* ending) const;
  void remove_entry(const std::filesystem::path& entry) const;

  const OwnFolder folder_;
  const std::filesystem::path scratch_;  // where workers may write
  const std::uint64_t limit_bytes_;
};

}  // namespace kiln
