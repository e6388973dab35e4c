// What older versions of the object format have left in a root: objects/v<n>, n below
// ours. Told by names and lstat alone: how such an object is read nobody knows any
// more. Newer versions, and names that are none, are not looked at.

#pragma once

#include <cstdint>
#include <stop_token>
#include <vector>

#include "cache/counters.h"
#include "cache/file_system.h"
#include "cache/layout.h"
#include "cache/object_store.h"
#include "cache/trust.h"

namespace kiln::cache {

struct OlderFormat {
  Layout layout;                    // of that version
  std::vector<unsigned> folders;    // those of its objects that can be trusted
  std::vector<ObjectFile> objects;  // regular files of those, in no order

  [[nodiscard]] std::uint32_t version() const { return layout.format(); }
  [[nodiscard]] std::uint64_t bytes() const;
  /// By the latest stamp, unix ns; 0 without objects.
  [[nodiscard]] std::int64_t last_used_ns() const;
};

/// Those that there are, the oldest first. A folder counts only if it can be trusted as
/// one of ours, is no link, and this user can delete in it: what nobody can remove must
/// not push out what can be used. `layout` is of the version that is ours; the path to
/// its objects has been checked. One listing where there is none; `stop` ends a walk
/// early, with what it has. What somebody else can write, or is a link, is counted.
[[nodiscard]] std::vector<OlderFormat> find_older_formats(
    const Layout& layout, FileSystem& file_system, const TrustPolicy& trust,
    Counters& counters, const std::stop_token& stop = {});

/// Those of its folders that are empty, then its own if that is. An older program that
/// still runs makes them again.
void remove_empty_folders(FileSystem& file_system, const OlderFormat& older);

}  // namespace kiln::cache
