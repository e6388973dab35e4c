// Checks who owns the files and folders beside the objects: locks, hints, memos and
// reproductions. cache/trust.h has the rules for objects.

#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln {

/// True if this user, root or the owner of the enclosing folder owns it, and neither
/// its group nor others can write it. `folder_owner` is called only if needed.
[[nodiscard]] bool is_trusted(
    const struct stat& info, const std::function<std::optional<uid_t>()>& folder_owner);

/// True for a file with a secret that nobody else learns or sets: of this user or root,
/// and readable by its owner alone, or root's and readable by a group of this process,
/// as Kubernetes mounts a Secret for a pod with fsGroup.
[[nodiscard]] bool is_secret(const struct stat& info);
inline constexpr const char* kSecretRemedy =
    "chmod 600 a file of your own; a file of root may have mode 0440 and a group of "
    "this process";

/// A folder for data that only saves work. A file there that is not our own is neither
/// read nor written, and `on_refused` is called.
/// Thread safety: every method may run concurrently.
class OwnFolder {
 public:
  /// An empty path: nothing is kept. `on_refused` is called at each refusal, on the
  /// thread that met it; without it refusals are not counted.
  // NOLINTNEXTLINE(google-explicit-constructor)
  OwnFolder(std::filesystem::path path = {}, std::function<void()> on_refused = {});

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] bool empty() const { return path_.empty(); }

  /// True if `name` is there and may be read, false if there is no such thing.
  /// Errors: kUntrusted, if it or the folder is a link or somebody else's.
  [[nodiscard]] Result<bool> has(std::string_view name) const;

  /// The bytes of that file; nullopt if it is not there, may not be read, or cannot be.
  [[nodiscard]] std::optional<Bytes> read(std::string_view name,
                                          std::uint64_t max_bytes) const;

  /// Succeeds if the folder may be written into, also if it does not exist yet.
  /// Errors: kUntrusted, as above.
  [[nodiscard]] Result<void> check() const;

 private:
  [[nodiscard]] Result<bool> check_path(const std::filesystem::path& path) const;

  std::filesystem::path path_;
  std::function<void()> on_refused_;
};

}  // namespace kiln
