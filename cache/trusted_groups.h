// Decides whose groups may write what leads to a cache. Asks no name service, which may
// hang: /etc/passwd and /etc/group alone.

#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <filesystem>
#include <vector>

#include "cache/file_system.h"

namespace kiln::cache {

/// Who asks, and where it is looked up. Tests have files of their own.
struct GroupQuestion {
  uid_t user;   // effective
  gid_t group;  // effective
  std::filesystem::path passwd = "/etc/passwd";
  std::filesystem::path groups = "/etc/group";
  std::filesystem::path root = "/";
  FileSystem* files = &real_file_system();  // that say what `root` is
};

/// Thread safety: immutable.
class TrustedGroups {
 public:
  /// None.
  TrustedGroups() = default;
  TrustedGroups(std::vector<gid_t> named, GroupQuestion question);

  /// True if each member of the file's group may be trusted like the user:
  /// - it is one of the named groups; or
  /// - it is the user's primary group, has the user's name and no other member, as
  ///   Debian, Red Hat and their kin make it for each user (umask 002); or
  /// - it is group 0 of a container that runs as an arbitrary user of group 0, and the
  ///   file is on the container's own overlay: nobody else is in there.
  [[nodiscard]] bool accepts(const struct stat& info) const;

 private:
  [[nodiscard]] bool is_private(gid_t group) const;
  [[nodiscard]] bool is_of_this_container(const struct stat& info) const;

  std::vector<gid_t> named_;
  GroupQuestion question_{};
  bool asks_ = false;
};

}  // namespace kiln::cache
