// Values of options that several verbs read the same way.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kiln/result.h"
#include "util/units.h"

namespace kiln::tools {

/// As kiln::parse_number(). Errors: kInvalidArgument, naming `option` as well.
[[nodiscard]] Result<std::uint64_t> parse_number(std::string_view option,
                                                 std::string_view text,
                                                 NumberRange range);

/// Checks, before any work, that a file can be made at `path`; "-" always can.
/// Errors: kNotFound (no such folder), kInvalidArgument (it is a folder).
[[nodiscard]] Result<void> check_output_path(std::string_view option,
                                             const std::string& path);

}  // namespace kiln::tools
