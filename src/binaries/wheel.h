// Wheels of Python, which are zip archives, and what of them may hold device code.

#pragma once

#include <filesystem>
#include <functional>

#include "kiln/result.h"
#include "util/bytes.h"
#include "util/file_range.h"

namespace kiln::binaries {

/// Whether `begin` is that of a zip archive.
[[nodiscard]] bool is_wheel(ByteView begin);

/// Calls `take` with each member that is_binary(), as "x.whl:torch/lib/libtorch.so";
/// ends at its first error. One after the other is decompressed into a scratch file in
/// the temporary folder. Errors: that; kCorrupt; kIo; kResourceLimit, for a member
/// above 16 GiB.
[[nodiscard]] Result<void> read_wheel(
    const std::filesystem::path& path,
    const std::function<Result<void>(const FileRange&)>& take);

}  // namespace kiln::binaries
