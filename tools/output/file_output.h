// Files that the user names: -o, --extract, --profile.

#pragma once

#include <string>

#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln::tools {

/// Replaces `path` in one step, so that a full disk leaves the old file whole; "-" is
/// standard output. The permissions are rw-r--r--. Errors: kIo.
[[nodiscard]] Result<void> write_output_file(const std::string& path, ByteView bytes);

}  // namespace kiln::tools
