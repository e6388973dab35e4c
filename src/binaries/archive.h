// Archives of objects, as ar writes them (ar(5), the System V format): libx.a.

#pragma once

#include <functional>

#include "kiln/result.h"
#include "util/bytes.h"
#include "util/file_range.h"

namespace kiln::binaries {

/// Whether `begin` is that of an archive, a thin one included.
[[nodiscard]] bool is_archive(ByteView begin);

/// Calls `take` with each member, also with tables of symbols and names; ends at its
/// first error. Errors: that; kCorrupt; kIo; kUnavailable (a thin archive).
[[nodiscard]] Result<void> read_archive(
    const FileRange& file, const std::function<Result<void>(const FileRange&)>& take);

}  // namespace kiln::binaries
