// Decides whether only trusted users could write a file. The cache defends against
// other users of the machine, never against its own owner.

#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cache/file_system.h"
#include "kiln/result.h"

namespace kiln::cache {

/// Thread safety: immutable.
class TrustPolicy {
 public:
  /// `user` trusts itself, root and `trusted`. `overflow` is the uid that stands for
  /// unmapped owners in a user namespace: as owner of an ancestor folder it counts as
  /// root.
  TrustPolicy(uid_t user, std::vector<uid_t> trusted, std::optional<uid_t> overflow);

  /// The effective user of this process, and its user namespace.
  [[nodiscard]] static TrustPolicy of_this_process(std::vector<uid_t> trusted);

  /// True if a trusted user owns the file and neither its group nor others can write
  /// it.
  [[nodiscard]] bool accepts(const struct stat& info) const {
    return owner(info.st_uid) && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  }

  /// True for a regular file that accepts() takes and that has no second hard link:
  /// what is written to it can land nowhere else.
  [[nodiscard]] bool accepts_file(const struct stat& info) const {
    return S_ISREG(info.st_mode) && info.st_nlink <= 1 && accepts(info);
  }

  /// True if `path` exists and accepts_file() does not take it. A symbolic link or FIFO
  /// is always refused, whatever it leads to.
  [[nodiscard]] bool refuses(FileSystem& file_system, const std::string& path) const;

  /// Walks `path` from "/" as the kernel would, symbolic links included, up to the
  /// first component that does not exist. Each must be accepted, except a sticky
  /// directory of root whose next component is accepted. Errors: kUntrusted, naming the
  /// component and what to do; kIo.
  [[nodiscard]] Result<void> check_path(FileSystem& file_system,
                                        const std::filesystem::path& path) const;

 private:
  [[nodiscard]] bool owner(uid_t uid) const;
  [[nodiscard]] bool accepts_component(const struct stat& info, bool last) const;

  uid_t user_;
  std::vector<uid_t> trusted_;
  std::optional<uid_t> overflow_;
};

}  // namespace kiln::cache
