// Values of options that several verbs read the same way.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "kiln/result.h"

namespace kiln::tools {

struct Range {
  std::uint64_t least;
  std::uint64_t most;
};

/// A whole number. Errors: kInvalidArgument, naming `option` and the range.
[[nodiscard]] Result<std::uint64_t> parse_number(std::string_view option,
                                                 std::string_view text, Range range);

/// As parse_duration(), and more than nothing. Errors: kInvalidArgument.
[[nodiscard]] Result<std::chrono::milliseconds> parse_time_limit(std::string_view text);

/// Before any work: can a file be made at `path`? "-" always can.
/// Errors: kNotFound (no such folder), kInvalidArgument (it is a folder).
[[nodiscard]] Result<void> check_output_path(std::string_view option,
                                             const std::string& path);

}  // namespace kiln::tools
