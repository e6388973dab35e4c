// The last scans of this process. Programs compile many sources with the same includes;
// the files that a scan found have only to be looked at again, not to be searched.

#pragma once

#include <cstddef>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "codec/digest.h"
#include "key/header_snapshot.h"
#include "key/key.h"
#include "util/include_directives.h"
#include "util/mutex.h"

namespace kiln::key {

/// Everything that determines a scan, but for files: not the source, but its
/// directives. nullopt: there is nothing to search for, or the source names the time of
/// its build.
[[nodiscard]] std::optional<Digest> determining(
    const SourceKeyInput& input, const Directives& source,
    std::span<const std::filesystem::path> toolkit_folders,
    const std::filesystem::path& standard_headers);

/// Thread safety: all members may be called concurrently; no lock is held while files
/// are looked at.
class ScanMemo {
 public:
  using Headers = std::shared_ptr<const HeaderSnapshot>;

  /// The last scan of that name; null if there is none, or a file that it found is not
  /// the same any more, or one has appeared where it found none. Cost: one stat for
  /// each place that was searched.
  [[nodiscard]] Headers find(const Digest& name) const;
  /// Only if it has no tree of the toolkit's, and stamps say all about its files: not
  /// on overlays and network file systems, and none that was changed in the last
  /// minute.
  void keep(const Digest& name, Headers headers);

 private:
  static constexpr std::size_t kMost = 16;
  mutable Mutex mutex_;
  std::deque<std::pair<Digest, Headers>> last_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::key
