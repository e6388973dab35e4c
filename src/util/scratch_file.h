// An unnamed file, which is gone with its descriptor.

#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "kiln/result.h"
#include "util/unique_fd.h"

namespace kiln {

/// TMPDIR, else /tmp.
[[nodiscard]] std::filesystem::path temporary_folder();

/// In the first of `folders` that takes it, else, as in a container whose temporary
/// folder is read-only, in memory. Errors: kIo.
[[nodiscard]] Result<UniqueFd> open_scratch(
    std::span<const std::filesystem::path> folders);
[[nodiscard]] Result<UniqueFd> open_scratch(const std::filesystem::path& folder);

/// For messages: "a temporary file in /scratch (TMPDIR)"; of an open file of any
/// folder.
[[nodiscard]] std::string scratch_name(int file);

}  // namespace kiln
