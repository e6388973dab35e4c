// What identifies a shared library in a key.

#pragma once

#include <filesystem>
#include <string>

#include "kiln/result.h"

namespace kiln {

/// The ELF build id; of a library that has none, such as NVIDIA's libnvrtc-builtins for
/// 64-bit ARM, "sha256-" and the digest of its bytes. Errors: as read_build_id() and
/// read_file().
[[nodiscard]] Result<std::string> library_id(const std::filesystem::path& path);

}  // namespace kiln
