#include "tools/output/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "util/printable.h"
#include "util/words.h"

namespace kiln::tools {
namespace {

std::string_view escape_of(Style style) {
  return word_of(style, {"", "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31m",
                         "\033[36m"});
}

// The program has one thread until the verb runs, and nothing ever calls setenv.
// NOLINTBEGIN(concurrency-mt-unsafe)
std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}
// NOLINTEND(concurrency-mt-unsafe)

Colours& chosen_colours() {
  static Colours colours = Colours::kAuto;  // trivially destroyed
  return colours;
}

bool wants_colours(bool is_terminal) {
  if (chosen_colours() != Colours::kAuto)
    return chosen_colours() == Colours::kAlways;
  if (!variable("NO_COLOR").empty())
    return false;
  for (const char* name : {"CLICOLOR_FORCE", "FORCE_COLOR"}) {
    if (const auto forced = variable(name); !forced.empty() && forced != "0")
      return true;
  }
  return is_terminal && variable("TERM") != "dumb";
}

std::string pad(std::string_view text, std::size_t width, Align align) {
  const std::size_t used = display_width(text);
  const std::string spaces(width > used ? width - used : 0, ' ');
  return align == Align::kRight ? spaces + std::string(text)
                                : std::string(text) + spaces;
}

/// The byte at which column number `column` of `text` begins.
std::size_t byte_of(const std::string& text, std::size_t column) {
  std::size_t at = 0;
  for (std::size_t seen = 0; at < text.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
    if (begins && seen++ == column)
      break;
  }
  return at;
}

/// The columns that are shown in `width`; makes one that may be cut narrower.
std::vector<std::size_t> fit(const std::vector<Column>& columns,
                             std::vector<std::size_t>& widths, std::size_t width) {
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < columns.size(); ++i) shown.push_back(i);
  const auto total = [&] {
    std::size_t sum = shown.empty() ? 0 : 2 * (shown.size() - 1);
    for (const std::size_t i : shown) sum += widths[i];
    return sum;
  };
  // Before a column goes, a long one loses letters.
  constexpr std::size_t kBegunCut = 40;
  const auto total_if_cut = [&] {
    std::size_t sum = total();
    for (const std::size_t i : shown) {
      if (columns[i].cut != Cut::kNever)
        sum -= widths[i] - std::min(widths[i], kBegunCut);
    }
    return sum;
  };
  while (total_if_cut() > width) {
    const auto most = std::ranges::max_element(
        shown, {}, [&](std::size_t i) { return columns[i].leave_out; });
    if (most == shown.end() || columns[*most].leave_out == 0)
      break;
    shown.erase(most);
  }
  constexpr std::size_t kLeastCut = 8;
  constexpr std::size_t kLeastWrapped = 20;
  for (auto i = shown.rbegin(); i != shown.rend(); ++i) {
    const Column& column = columns[*i];
    const std::size_t now = total();
    if ((column.cut == Cut::kNever && !column.may_wrap) || now <= width)
      continue;
    const std::size_t least = column.may_wrap ? kLeastWrapped : kLeastCut;
    widths[*i] = std::max(std::min(widths[*i], least),
                          widths[*i] - std::min(widths[*i], now - width));
  }
  return shown;
}

/// A cell as the lines that it takes.
std::vector<std::string> lines_of(const Column& column, const std::string& cell,
                                  std::size_t width) {
  if (!column.may_wrap)
    return {shortened(cell, width, column.cut)};
  std::vector<std::string> lines;
  const std::string text = wrapped(cell, width);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    for (std::size_t bar = 0; display_width(line) > width; line.erase(0, bar + 1)) {
      bar = line.rfind('|', width - 1);  // of a list of values
      if (bar == std::string::npos)
        break;
      lines.push_back(line.substr(0, bar + 1));
    }
    lines.push_back(shortened(line, width, column.cut));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

Terminal::Terminal(std::FILE* stream)
    : stream_(stream),
      is_terminal_(::isatty(::fileno(stream)) == 1),
      colours_(wants_colours(is_terminal_)) {}

void choose_colours(Colours colours) {
  chosen_colours() = colours;
}

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
  return std::string(escape_of(style)).append(text).append("\033[0m");
}

std::string Terminal::fitted(std::string_view text, std::size_t indent) const {
  return is_terminal_ ? wrapped(text, static_cast<std::size_t>(width()), indent)
                      : std::string(text);
}

std::string printable_lines(std::string_view text) {
  std::string out(text);
  std::replace_if(
      out.begin(), out.end(),
      [](unsigned char c) { return (c < ' ' && c != '\n' && c != '\t') || c == 0x7F; },
      '?');
  return out;
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0U) != 0x80U; }));
}

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    text.remove_prefix(end);
    while (display_width(line) > width) {
      // By bytes, of which no word has fewer than columns.
      std::size_t space = line.rfind(' ', width);
      if (space == std::string::npos || space <= indent)
        space = line.find(' ', std::max(width, indent + 1));
      if (space == std::string::npos)
        break;
      out += line.substr(0, space) + '\n';
      line = std::string(indent, ' ') + line.substr(space + 1);
    }
    out += line;
    if (!text.empty()) {
      out += '\n';
      text.remove_prefix(1);
    }
  }
  return out;
}

std::string shortened(const std::string& text, std::size_t width, Cut cut) {
  const std::size_t all = display_width(text);
  if (all <= width)
    return text;
  constexpr std::string_view kDots = "...";
  if (width <= kDots.size())
    return std::string(kDots.substr(0, width));
  const std::size_t left = width - kDots.size();
  const std::size_t tail = cut == Cut::kMiddle ? 3 * left / 4 : 0;
  return text.substr(0, byte_of(text, left - tail)) + std::string(kDots) +
         text.substr(byte_of(text, all - tail));
}

std::string counted(std::uint64_t count, std::string_view one, std::string_view many) {
  return std::to_string(count) + " " + std::string(count == 1 ? one : many);
}

std::string format_table(const std::vector<Column>& columns,
                         const std::vector<std::vector<std::string>>& rows,
                         const Terminal& terminal) {
  return format_table(columns, rows, terminal,
                      terminal.is_terminal()
                          ? static_cast<std::size_t>(terminal.width())
                          : std::numeric_limits<std::size_t>::max());
}

std::string format_table(const std::vector<Column>& columns,
                         const std::vector<std::vector<std::string>>& rows,
                         const Terminal& terminal, std::size_t width) {
  std::vector<std::size_t> widths;
  for (const Column& column : columns) widths.push_back(display_width(column.title));
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i)
      widths[i] = std::max(widths[i], display_width(row[i]));
  }
  const std::vector<std::size_t> shown = fit(columns, widths, width);
  const auto line = [&](const std::vector<std::string>& cells) {
    std::vector<std::vector<std::string>> parts(columns.size());
    std::size_t height = 1;
    for (const std::size_t i : shown) {
      const std::string cell = i < cells.size() ? printable(cells[i]) : "";
      parts[i] = lines_of(columns[i], cell, widths[i]);
      height = std::max(height, parts[i].size());
    }
    std::string text;
    for (std::size_t row = 0; row < height; ++row) {
      text += row == 0 ? "" : "\n";
      for (const std::size_t i : shown) {
        text += i == shown.front() ? "" : "  ";
        text += pad(row < parts[i].size() ? parts[i][row] : "", widths[i],
                    columns[i].align);
      }
      text.erase(text.find_last_not_of(' ') + 1);
    }
    return text;
  };
  std::vector<std::string> titles;
  for (const Column& column : columns) titles.push_back(column.title);
  std::string out = terminal.styled(line(titles), Style::kBold) + '\n';
  for (const auto& row : rows) out += line(row) + '\n';
  return out;
}

}  // namespace kiln::tools
