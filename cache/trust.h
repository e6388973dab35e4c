// Decides whether only trusted users could write a file. The cache defends against
// other users of the machine, never against its own owner.

#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cache/file_system.h"
#include "cache/trusted_groups.h"
#include "kiln/result.h"

namespace kiln::cache {

/// Thread safety: immutable.
class TrustPolicy {
 public:
  /// `user` trusts itself, root and `trusted`. `overflow` is the uid that stands for
  /// unmapped owners in a user namespace: as owner of an ancestor folder it counts as
  /// root.
  TrustPolicy(uid_t user, std::vector<uid_t> trusted, std::optional<uid_t> overflow,
              TrustedGroups groups = {});

  /// The effective user of this process, and its user namespace.
  [[nodiscard]] static TrustPolicy of_this_process(std::vector<uid_t> trusted,
                                                   std::vector<gid_t> groups = {});

  /// The same policy where `folder` is held open: what leads there does not matter.
  [[nodiscard]] TrustPolicy below(std::filesystem::path folder) const;

  /// True if a trusted user owns it and nobody else can write it. A folder, and no
  /// file, may be writable by a group of TrustedGroups.
  [[nodiscard]] bool accepts(const struct stat& info) const {
    return owner(info.st_uid) && !is_open(info);
  }

  [[nodiscard]] bool owner(uid_t uid) const;

  /// True for a regular file that accepts() takes and that has no second hard link:
  /// what is written to it can land nowhere else.
  [[nodiscard]] bool accepts_file(const struct stat& info) const {
    return S_ISREG(info.st_mode) && info.st_nlink <= 1 && accepts(info);
  }

  /// True if `path` exists and accepts_file() does not take it. A symbolic link or FIFO
  /// is always refused, whatever it leads to.
  [[nodiscard]] bool refuses(FileSystem& file_system, const std::string& path) const;

  /// How far a walk came.
  struct Walk {
    Result<void> outcome;
    std::filesystem::path at;        // the last component that was looked at
    std::deque<std::string> rest{};  // the names behind it
    /// True if `at` was refused because others can write that folder, although a
    /// trusted user owns it.
    bool is_open = false;
  };
  /// Walks `path` from "/" as the kernel would, symbolic links included, up to the
  /// first component that does not exist. Each must be accepted, except a sticky
  /// directory of root whose next component is accepted. Errors: kUntrusted, naming the
  /// component and what to do; kIo.
  [[nodiscard]] Walk walk(FileSystem& file_system,
                          const std::filesystem::path& path) const;
  [[nodiscard]] Result<void> check_path(FileSystem& file_system,
                                        const std::filesystem::path& path) const {
    return walk(file_system, path).outcome;
  }

 private:
  /// True if somebody who is not trusted can write it.
  [[nodiscard]] bool is_open(const struct stat& info) const;
  [[nodiscard]] bool accepts_component(const struct stat& info, bool last) const;

  uid_t user_;
  std::vector<uid_t> trusted_;
  std::optional<uid_t> overflow_;
  TrustedGroups groups_;
  std::filesystem::path held_ = "/";
};

}  // namespace kiln::cache
