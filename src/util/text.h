// Parts and forms of short texts: settings, names, lines of files.

#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace kiln {

/// `text` without the characters of `blanks` at its ends.
[[nodiscard]] std::string_view trimmed(std::string_view text,
                                       std::string_view blanks = " \t\r\n");

/// The text before the first of `separators`, which is taken off `text` with it.
[[nodiscard]] std::string_view next_part(std::string_view& text,
                                         std::string_view separators);

/// The parts of `text` between any of `separators`, without the empty ones.
[[nodiscard]] std::vector<std::string_view> parts_of(std::string_view text,
                                                     std::string_view separators);

/// The number that `text` is, as std::from_chars() reads it; nullopt: it is no number
/// of that type, or something else as well.
template <typename Number>
[[nodiscard]] std::optional<Number> number_of(std::string_view text) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && after == end ? std::optional(number) : std::nullopt;
}

/// Of ASCII letters, whatever the locale is.
[[nodiscard]] std::string lower_case(std::string_view text);

}  // namespace kiln
