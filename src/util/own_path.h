// Whose a file or folder is, for what is kept beside the objects: hints, memos and
// reproductions. Objects have rules of their own, in cache/trust.h.

#pragma once

#include <filesystem>

#include "kiln/result.h"

namespace kiln {

/// True for a file or folder, no link, that belongs to this user, to root or to whom
/// the folder around it belongs to, and that nobody else can write.
[[nodiscard]] bool is_own_path(const std::filesystem::path& path);

/// Errors: kUntrusted, for a folder that is not as above, or a link in its place.
[[nodiscard]] Result<void> check_own_folder(const std::filesystem::path& folder);

}  // namespace kiln
