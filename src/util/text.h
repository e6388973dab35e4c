// Parts and forms of short texts: settings, names, lines of files.

#pragma once

#include <string>
#include <string_view>

namespace kiln {

/// `text` without the characters of `blanks` at its ends.
[[nodiscard]] std::string_view trimmed(std::string_view text,
                                       std::string_view blanks = " \t\r\n");

/// The text before the first of `separators`, which is taken off `text` with it.
[[nodiscard]] std::string_view next_part(std::string_view& text,
                                         std::string_view separators);

/// Of ASCII letters, whatever the locale is.
[[nodiscard]] std::string lower_case(std::string_view text);

}  // namespace kiln
