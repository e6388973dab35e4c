// ASCII character classes, independent of the locale.

#pragma once

namespace kiln {

[[nodiscard]] constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
/// A letter or '_'.
[[nodiscard]] constexpr bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
[[nodiscard]] constexpr bool is_name_char(char c) {
  return is_name_start(c) || is_digit(c);
}

}  // namespace kiln
