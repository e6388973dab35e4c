// The libnvrtc and the builtins that this process has really loaded, as the dynamic
// loader lists them. LD_LIBRARY_PATH can pair one libnvrtc with other builtins.

#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "compile/protocol/job.h"

namespace kiln::compile {

/// Every shared object of this process, with the build id from its mapped notes. The
/// file may have been replaced since; it is read only if they hold none. Thread-safe.
[[nodiscard]] std::vector<LoadedLibrary> loaded_libraries();

/// The library that was opened as `path`, also through a link. Empty if there is none.
[[nodiscard]] LoadedLibrary loaded_as(const std::filesystem::path& path);

/// The first whose file name begins with `prefix`. Empty if there is none.
[[nodiscard]] LoadedLibrary loaded_named(std::string_view prefix);

}  // namespace kiln::compile
