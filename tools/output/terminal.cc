#include "tools/output/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace kiln::tools {
namespace {

const char* escape_of(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kBold:
      return "\033[1m";
    case Style::kDim:
      return "\033[2m";
    case Style::kGreen:
      return "\033[32m";
    case Style::kYellow:
      return "\033[33m";
    case Style::kRed:
      return "\033[31m";
  }
  return "";
}

// The program has one thread until the verb runs, and nothing ever calls setenv.
// NOLINTBEGIN(concurrency-mt-unsafe)
bool wants_colours() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}
// NOLINTEND(concurrency-mt-unsafe)

bool is_control(unsigned char c) {
  return c < 0x20 || c == 0x7F;
}

/// For a table cell, which is one line.
std::string printable(std::string_view text) {
  std::string out(text);
  std::replace_if(out.begin(), out.end(), is_control, '?');
  return out;
}

std::string pad(std::string_view text, std::size_t width, Align align) {
  const std::size_t used = display_width(text);
  const std::string spaces(width > used ? width - used : 0, ' ');
  return align == Align::kRight ? spaces + std::string(text)
                                : std::string(text) + spaces;
}

}  // namespace

Terminal::Terminal(std::FILE* stream)
    : stream_(stream),
      is_terminal_(::isatty(::fileno(stream)) == 1),
      colours_(is_terminal_ && wants_colours()) {}

int Terminal::width() const {
  winsize size{};
  if (is_terminal_ && ::ioctl(::fileno(stream_), TIOCGWINSZ, &size) == 0 &&
      size.ws_col > 0)
    return size.ws_col;
  return 80;
}

std::string Terminal::styled(std::string_view text, Style style) const {
  if (!colours_ || style == Style::kPlain)
    return std::string(text);
  return escape_of(style) + std::string(text) + "\033[0m";
}

std::string printable_lines(std::string_view text) {
  std::string out(text);
  std::replace_if(
      out.begin(), out.end(),
      [](unsigned char c) { return is_control(c) && c != '\n' && c != '\t'; }, '?');
  return out;
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0U) != 0x80U; }));
}

std::string format_table(const std::vector<Column>& columns,
                         const std::vector<std::vector<std::string>>& rows,
                         const Terminal& terminal) {
  std::vector<std::size_t> widths;
  for (const Column& column : columns) widths.push_back(display_width(column.title));
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i)
      widths[i] = std::max(widths[i], display_width(row[i]));
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (i > 0)
        text += "  ";
      text +=
          pad(i < cells.size() ? printable(cells[i]) : "", widths[i], columns[i].align);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  std::vector<std::string> titles;
  for (const Column& column : columns) titles.push_back(column.title);
  std::string out = terminal.styled(line(titles), Style::kBold) + '\n';
  for (const auto& row : rows) out += line(row) + '\n';
  return out;
}

}  // namespace kiln::tools
