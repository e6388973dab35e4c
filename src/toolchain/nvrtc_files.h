// The files around an NVRTC library: its builtins, and the headers of its toolkit.

#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "device/cuda_version.h"
#include "util/own_path.h"

namespace kiln::device {

/// The libnvrtc-builtins that `nvrtc` (absolute, resolved) loads from its own folder:
/// that of `version` if it is known, else of the version in its file name, else the
/// newest of its major version. Resolved; nullopt if there is none.
[[nodiscard]] std::optional<std::filesystem::path> builtins_beside(
    const std::filesystem::path& nvrtc, std::optional<CudaVersion> version);

/// Where an NVRTC is, and where else its headers may be.
struct HeaderSearch {
  std::filesystem::path nvrtc;     // absolute, resolved
  std::filesystem::path found_at;  // the link that led there, or the same
  /// Toolkits that the environment names: CUDA_HOME, CUDA_PATH, Conda's environment.
  std::vector<std::filesystem::path> toolkits{};
  CudaVersion version{};
  std::filesystem::path system_root{};  // for packaged_headers()
  OwnFolder links{};
};

/// The header folders of the toolkit of an NVRTC, in search order; resolved: beside the
/// link that was found, beside the file itself, else of a named toolkit of the same
/// major version; the first of these that has CCCL's headers and the compiler's, or,
/// where none has, the first that has any. Else of packages whose headers lie in
/// /usr/include. Of wheels for CUDA 12 those of all `nvidia/*/include`. Empty: there
/// are none. Never /usr/include itself.
[[nodiscard]] std::vector<std::filesystem::path> include_roots_of(
    const HeaderSearch& search);

/// The major version of CUDA that cuda.h in this folder is of; nullopt: there is none,
/// or it does not say.
[[nodiscard]] std::optional<int> major_of_headers(const std::filesystem::path& include);

}  // namespace kiln::device
