// Reads prelude.cuh and its parts in prelude/ as one text, which precedes a kernel's.

#pragma once

#include <filesystem>
#include <string>

#include "kiln/result.h"

namespace kiln::render {

/// The text of `folder`/prelude.cuh; empty if there is no prelude. Each line
/// `#include "prelude/<part>.cuh"` is replaced by that part, with `#line` before and
/// after it. Errors: kInvalidArgument "<file>:<line>: <reason>", for any other include,
/// for a part that does not exist, is included twice or includes something, and for a
/// tag or a NUL; those of read_text_file().
[[nodiscard]] Result<std::string> read_prelude(const std::filesystem::path& folder);

}  // namespace kiln::render
