// Folders of files with device code.

#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "kiln/result.h"

namespace kiln::binaries {

/// Calls `take` with the path of each regular file below `folder`, in order of names
/// within each folder. Follows no links; passes over folders that it may not read.
/// Errors: kNotFound, kIo (the folder itself).
[[nodiscard]] Result<void> walk(
    const std::filesystem::path& folder,
    const std::function<void(const std::filesystem::path&)>& take);

/// "libx.so", "libx.so.1.2", "_C.abi3.so".
[[nodiscard]] bool is_library_name(std::string_view file_name);

}  // namespace kiln::binaries
