// Where the lock files lie, and the counts of a root that takes none: always on a local
// file system, whatever the root is on. No lock call is ever made on a network file
// system.

#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cache/file_system.h"
#include "cache/layout.h"
#include "cache/trust.h"
#include "kiln/result.h"

namespace kiln::cache {

/// Thread safety: immutable.
struct LockFolder {
  std::filesystem::path path;  // empty: there is none; `why` says why
  std::string why;
  unsigned refused = 0;  // places that another user can change

  [[nodiscard]] bool usable() const { return !path.empty(); }
};

/// <root>/locks on a local file system; else <runtime_dir>/kiln/<root id>; else a 0700
/// folder <persistent_dir>/kiln-<uid>/<root id>. Creates it. `runtime_dir` is the value
/// of XDG_RUNTIME_DIR or empty; `persistent_dir` is /var/tmp outside of tests.
[[nodiscard]] LockFolder find_lock_folder(const Layout& layout, FileSystem& file_system,
                                          const TrustPolicy& trust,
                                          const std::filesystem::path& runtime_dir,
                                          const std::filesystem::path& persistent_dir);

/// <folder>/kiln-<uid>/<root id>, of this user. Errors: kUnavailable (not absolute).
[[nodiscard]] Result<std::filesystem::path> node_folder(
    const Layout& layout, const std::filesystem::path& folder);
/// Creates it. Makes no call on a far mount, which may be dead. Errors: kUntrusted,
/// kUnavailable (on a network file system), kIo.
[[nodiscard]] Result<void> make_node_folder(FileSystem& file_system,
                                            const TrustPolicy& trust,
                                            const std::filesystem::path& path);
/// The same of every user, by the user that its name says; others may have made it.
/// None of a folder on a far mount.
[[nodiscard]] std::vector<std::pair<uid_t, std::filesystem::path>> node_folders(
    const Layout& layout, const std::filesystem::path& folder);

}  // namespace kiln::cache
