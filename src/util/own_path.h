// Whose a file or folder is, for what is kept beside the objects: locks, hints, memos
// and reproductions. Objects have rules of their own, in cache/trust.h.

#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "kiln/result.h"

namespace kiln {

/// The rule: it belongs to this user, to root or to whom the folder around it belongs
/// to, and nobody else can write it. `folder_owner` is asked only where it matters.
[[nodiscard]] bool is_own(const struct stat& info,
                          const std::function<std::optional<uid_t>()>& folder_owner);

/// A folder in which a user of the cache keeps what only saves work. What lies there
/// and is not ours is neither read nor written, and somebody is told.
/// Thread safety: every method may run concurrently.
class OwnFolder {
 public:
  /// An empty path: nothing is kept. `on_refused` is told of each refusal, on the
  /// thread that met it; a path alone is a folder whose refusals nobody counts.
  // NOLINTNEXTLINE(google-explicit-constructor)
  OwnFolder(std::filesystem::path path = {}, std::function<void()> on_refused = {});

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] bool empty() const { return path_.empty(); }

  /// True if `name` is there and may be read, false if there is no such thing.
  /// Errors: kUntrusted, if it or the folder is a link or somebody else's.
  [[nodiscard]] Result<bool> has(std::string_view name) const;

  /// Whether something may be written into it, also where it is yet to be made.
  /// Errors: kUntrusted, as above.
  [[nodiscard]] Result<void> check() const;

 private:
  [[nodiscard]] Result<bool> look(const std::filesystem::path& path) const;

  std::filesystem::path path_;
  std::function<void()> on_refused_;
};

}  // namespace kiln
