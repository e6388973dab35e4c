// Who may have written what we are about to use. The cache defends against other users
// of the machine, never against its own owner.

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
  /// unmapped owners in a user namespace: of an ancestor folder it counts as root.
  TrustPolicy(uid_t user, std::vector<uid_t> trusted, std::optional<uid_t> overflow);

  /// The effective user of this process, and its user namespace.
  [[nodiscard]] static TrustPolicy of_this_process(std::vector<uid_t> trusted);

  /// True if a trusted user owns it and nobody else can write it. (Write permission of
  /// the group counts as somebody else's.)
  [[nodiscard]] bool accepts(const struct stat& info) const {
    return owner(info.st_uid) && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  }

  /// True if what is written into it can land nowhere else: a regular file that
  /// accepts() takes and that has no second name.
  [[nodiscard]] bool accepts_file(const struct stat& info) const {
    return S_ISREG(info.st_mode) && info.st_nlink <= 1 && accepts(info);
  }

  /// True if something lies at `path` that accepts_file() does not take: a link and a
  /// FIFO, too, whatever they lead to.
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
