// The beginning of a source that its precompiled header stands for.

#pragma once

#include <string_view>

namespace kiln {

/// The text up to the last #include of the directives and comments that a source begins
/// with, with that line's end, or with the end of the #if around it. Empty if there is
/// none. What follows has no influence on it. A compiler that sees another end refuses
/// the precompiled header, so this need not be exact.
[[nodiscard]] std::string_view include_prefix(std::string_view source);

}  // namespace kiln
