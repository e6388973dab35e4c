// The files around an NVRTC library: its builtins, and the headers of its toolkit.

#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "device/cuda_version.h"

namespace kiln::device {

/// The libnvrtc-builtins that `nvrtc` (absolute, resolved) loads from its own folder:
/// that of `version` if it is known, else of the version in its file name, else the
/// newest of its major version. Resolved; nullopt if there is none.
[[nodiscard]] std::optional<std::filesystem::path> builtins_beside(
    const std::filesystem::path& nvrtc, std::optional<CudaVersion> version);

/// The header folders of the toolkit of `nvrtc` (absolute, resolved), in search order;
/// resolved. Empty if that toolkit came without headers. Never a system folder
/// (/usr/include).
[[nodiscard]] std::vector<std::filesystem::path> include_roots_of(
    const std::filesystem::path& nvrtc);

}  // namespace kiln::device
