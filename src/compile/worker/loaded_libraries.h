// The libnvrtc and the builtins that this process has really loaded, as the dynamic
// loader lists them. LD_LIBRARY_PATH can pair one libnvrtc with other builtins.

#pragma once

#include <filesystem>
#include <vector>

#include "compile/protocol/job.h"

namespace kiln::compile {

/// Every shared object of this process, with the build id from its mapped notes. The
/// file may have been replaced since; it is read only if they hold none. Thread-safe.
[[nodiscard]] std::vector<LoadedLibrary> loaded_libraries();

/// The library that was opened as `path`, also through a link. Empty if there is none.
[[nodiscard]] LoadedLibrary loaded_as(const std::filesystem::path& path);

/// The NVRTC builtins in this process. Empty if none is loaded.
[[nodiscard]] LoadedLibrary loaded_builtins();

}  // namespace kiln::compile
