// Texts of others for a line of a log or a terminal.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kiln {

/// `text` with '?' in the place of each control character, which a terminal may take
/// for a command, and of each byte that is no UTF-8, and a blank in the place of a tab.
/// Of more than `most_bytes` the first, up to the end of a character, and "…".
[[nodiscard]] std::string printable(std::string_view text,
                                    std::size_t most_bytes = std::string_view::npos);

}  // namespace kiln
