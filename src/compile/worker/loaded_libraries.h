// Which libnvrtc and which builtins this process really has, by the dynamic loader's
// own list. LD_LIBRARY_PATH can put other builtins beside the same libnvrtc.

#pragma once

#include <filesystem>
#include <vector>

#include "compile/protocol/job.h"

namespace kiln::compile {

/// Every shared object of this process with the build id in its mapped notes (not of
/// the file, which may have been replaced since, unless they hold none). Thread-safe.
[[nodiscard]] std::vector<LoadedLibrary> loaded_libraries();

/// The library that was opened as `path`, also through a link. Empty if there is none.
[[nodiscard]] LoadedLibrary loaded_as(const std::filesystem::path& path);

/// The NVRTC builtins in this process. Empty if none is loaded.
[[nodiscard]] LoadedLibrary loaded_builtins();

}  // namespace kiln::compile
