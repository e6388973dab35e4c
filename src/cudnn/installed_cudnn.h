// The cuDNN of this machine: where it is, and which.

#pragma once

#include <filesystem>
#include <vector>

#include "attention/cudnn_version.h"
#include "cudnn/library.h"
#include "kiln/result.h"
#include "util/library_search.h"

namespace kiln::attention {

/// Every cuDNN of this machine, the one that is used first; `explicit_path`
/// (KILN_CUDNN) beats all, empty is none. Errors: as find_libraries().
[[nodiscard]] Result<std::vector<LibraryCandidate>> find_cudnn(
    const std::filesystem::path& explicit_path, const LibraryPlaces& places);

/// The first of find_cudnn(). Errors: kUnavailable, where there is none or it cannot be
/// opened; those of find_cudnn().
[[nodiscard]] Result<CudnnLibrary> open_installed_cudnn(
    const std::filesystem::path& explicit_path, const LibraryPlaces& places);

/// Of the same. Opens the library and leaves it open. Errors: as there.
[[nodiscard]] Result<CudnnVersion> installed_cudnn_version(
    const std::filesystem::path& explicit_path, const LibraryPlaces& places);

}  // namespace kiln::attention
