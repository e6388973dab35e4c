// An unnamed file, which is gone with its descriptor.

#pragma once

#include <filesystem>

#include "kiln/result.h"
#include "util/unique_fd.h"

namespace kiln {

/// TMPDIR, else /tmp.
[[nodiscard]] std::filesystem::path temporary_folder();

/// In `folder`, else, as in a container whose temporary folder is read-only, in memory.
/// Errors: kIo.
[[nodiscard]] Result<UniqueFd> open_scratch(const std::filesystem::path& folder);

}  // namespace kiln
