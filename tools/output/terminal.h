// Formats text for people: colours and tables. For JSON see print_json() in context.h.

#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "util/words.h"

namespace kiln::tools {

enum class Style { kPlain, kBold, kDim, kGreen, kYellow, kRed, kCyan };

/// Of a verdict whose values are good, doubtful and bad, in this order.
template <typename Verdict>
[[nodiscard]] constexpr Style style_of(Verdict verdict) {
  constexpr std::array kStyles{Style::kGreen, Style::kYellow, Style::kRed};
  return kStyles.at(static_cast<std::size_t>(verdict));
}

/// kAuto: as the environment says: none if NO_COLOR is set to anything; else some if
/// CLICOLOR_FORCE or FORCE_COLOR is set, and not to 0; else on a terminal whose TERM is
/// not "dumb".
enum class Colours : std::uint8_t { kAuto, kAlways, kNever };

/// For every Terminal that is made afterwards. Not while another thread makes one.
void choose_colours(Colours colours);

/// One of the two standard streams, asked once whether it is a terminal.
/// Thread safety: immutable.
class Terminal {
 public:
  explicit Terminal(std::FILE* stream);

  [[nodiscard]] bool is_terminal() const { return is_terminal_; }
  /// Columns of the window now; 80 if unknown.
  [[nodiscard]] int width() const;
  /// `text` in `style`, where choose_colours() or the environment wants colours.
  [[nodiscard]] std::string styled(std::string_view text, Style style) const;
  /// `text` as wrapped() to the width, if this is a terminal.
  [[nodiscard]] std::string fitted(std::string_view text, std::size_t indent = 0) const;

 private:
  std::FILE* stream_;
  bool is_terminal_;
  bool colours_;
};

enum class Align { kLeft, kRight };

/// What "..." takes the place of in a cell that is too long: kMiddle leaves of the end
/// three times as much as of the beginning.
enum class Cut { kNever, kEnd, kMiddle };

struct Column {
  std::string title;
  Align align = Align::kLeft;
  /// Where the table is too wide, the column with the highest number is left out first,
  /// if cutting others to 40 columns is not enough. 0: it stays.
  int leave_out = 0;
  /// Those that stay are made narrower, the last one first: cut short, or
  Cut cut = Cut::kNever;
  /// continued on further lines.
  bool may_wrap = false;
};

/// Rows under titles, columns as wide as their widest cell, two spaces between them,
/// no trailing space. Cells are plain text; control characters are shown as '?'. On a
/// terminal a row fits its width, as far as the columns allow.
[[nodiscard]] std::string format_table(
    const std::vector<Column>& columns,
    const std::vector<std::vector<std::string>>& rows, const Terminal& terminal);

/// The same, in at most `width` columns.
[[nodiscard]] std::string format_table(
    const std::vector<Column>& columns,
    const std::vector<std::vector<std::string>>& rows, const Terminal& terminal,
    std::size_t width);

/// `text` with lines of at most `width` columns, broken between words; what follows a
/// break begins with `indent` blanks. A word that is longer stays whole.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t width,
                                  std::size_t indent = 0);

/// `text`, cut to at most `width` columns.
[[nodiscard]] std::string shortened(const std::string& text, std::size_t width,
                                    Cut cut);

/// "1 entry", "2 entries": `one` and `many` are the noun.
[[nodiscard]] std::string counted(std::uint64_t count, std::string_view one,
                                  std::string_view many);

/// `text` with each control character except newline and tab replaced by '?': names and
/// logs come from outside and must not control the terminal.
[[nodiscard]] std::string printable_lines(std::string_view text);

/// Number of columns that UTF-8 `text` takes: one a code point.
[[nodiscard]] std::size_t display_width(std::string_view text);

}  // namespace kiln::tools

namespace kiln {

template <>
inline constexpr std::array<std::string_view, 3> kWords<tools::Colours>{
    "auto", "always", "never"};

}  // namespace kiln
