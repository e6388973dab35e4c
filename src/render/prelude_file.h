// prelude.cuh and its parts in prelude/, as the one text that stands before a kernel's.

#pragma once

#include <filesystem>
#include <string>

#include "kiln/result.h"

namespace kiln::render {

/// The text of `folder`/prelude.cuh, with the part itself where a line is
/// `#include "prelude/<part>.cuh"`, and `#line` before and after it; empty if there is
/// no prelude. Errors: kInvalidArgument "<file>:<line>: <reason>", for any other
/// include, for a part that is not there, that is included twice or that includes
/// something, and for a tag or a NUL; those of read_text_file().
[[nodiscard]] Result<std::string> read_prelude(const std::filesystem::path& folder);

}  // namespace kiln::render
