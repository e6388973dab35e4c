// Where the lock files lie: always on a local file system, whatever the root is on. No
// lock call is ever made on a network file system.

#pragma once

#include <filesystem>
#include <string>

#include "cache/file_system.h"
#include "cache/layout.h"
#include "cache/trust.h"

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

}  // namespace kiln::cache
