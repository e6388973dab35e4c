// The cuDNN of this machine, as far as the rules ask: its version.

#pragma once

#include <filesystem>

#include "attention/cudnn_version.h"
#include "kiln/result.h"
#include "util/library_search.h"

namespace kiln::attention {

/// Of the first that is found; `explicit_path` (KILN_CUDNN) beats all, empty is none.
/// Opens the library and leaves it open. Errors: kUnavailable, where there is none or
/// it cannot be opened.
[[nodiscard]] Result<CudnnVersion> installed_cudnn_version(
    const std::filesystem::path& explicit_path, const LibraryPlaces& places);

}  // namespace kiln::attention
