// CUDA's headers where Debian's and Ubuntu's packages put them: in /usr/include, among
// glibc's, which no device code can be compiled with.

#pragma once

#include <filesystem>
#include <optional>

#include "util/own_path.h"

namespace kiln::device {

/// The header folder that these packages make up: a folder in `folder` with a link to
/// each of their files under `root`/usr/include, as dpkg lists them, and to no other
/// file. Its name has a digest of that list. NVRTC looks for "x.h" beside the link and
/// not beside the file that it leads to (seen with 12.4 to 13.5). Each call makes what
/// is missing of it, so that any number of processes may do so at once, and a link
/// that was lost is back.
/// nullopt: no such packages, those of another major version of CUDA, or no `folder`
/// that can be written and lacks nothing.
[[nodiscard]] std::optional<std::filesystem::path> packaged_headers(
    const std::filesystem::path& root, const OwnFolder& folder, int cuda_major);

/// True where such packages of that version are, whether or not there is a folder.
[[nodiscard]] bool has_packaged_headers(const std::filesystem::path& root,
                                        int cuda_major);

/// True for the name of such a folder.
[[nodiscard]] bool is_packaged_headers(const std::filesystem::path& folder);

}  // namespace kiln::device
