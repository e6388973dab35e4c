// Mounts whose server may be gone: NFS, FUSE, Lustre and the like. A call on one that
// is dead does not return, so whether a path lies on one is found without touching it.

#pragma once

#include <filesystem>
#include <istream>
#include <optional>
#include <string>

namespace kiln {

struct FarMount {
  std::filesystem::path place;  // where it is mounted
  std::string type;             // "nfs4", "fuse.sshfs"
};

/// "fuse.sshfs at /home"
[[nodiscard]] std::string to_string(const FarMount& mount);

/// The first mount on the way to `path` that is not known to be local; nullopt: there
/// is none, or no /proc. Follows links as the kernel does, up to that mount, and makes
/// no call on it. Cost: reads /proc/self/mountinfo, one readlink for each component.
[[nodiscard]] std::optional<FarMount> far_mount_of(const std::filesystem::path& path);

/// The same with the lines of `mountinfo`.
[[nodiscard]] std::optional<FarMount> far_mount_of(const std::filesystem::path& path,
                                                   std::istream& mountinfo);

}  // namespace kiln
