// How help looks: CLI11's text in Kiln's words, order, width and colours.

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cctype>
#include <sstream>
#include <vector>

#include "tools/option_set.h"
#include "tools/program.h"

namespace kiln::tools {
namespace {

constexpr std::size_t kColumn = 26;  // of the meanings
constexpr std::size_t kWidth = 90;   // at most, in a wider terminal as well
constexpr std::string_view kGap =
    "  ";  // before a name, and between it and its meaning

class Formatter final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = make_description(app) + make_usage(app, std::move(name)) +
                       make_positionals(app);
    std::vector<std::string> groups = app->get_groups();
    std::ranges::stable_sort(groups, {}, [](const std::string& group) {
      return group == kFleetGroup ? 2 : group == kOutputGroup ? 1 : 0;
    });
    for (const std::string& group : groups) {
      const auto options = app->get_options([&](const CLI::Option* option) {
        return option->get_group() == group && option->nonpositional();
      });
      if (!group.empty() && !options.empty())
        text += make_group(group, false, options);
    }
    return text + make_subcommands(app, mode) + '\n' + make_footer(app);
  }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    return name == "kiln" ? "Usage: kiln VERB [OPTIONS]\n"
                          : CLI::Formatter::make_usage(app, std::move(name));
  }
};

/// "Cache and fleet:", and no sentence that ends with a colon.
bool is_heading(const std::string& line) {
  constexpr std::size_t kLongest = 20;
  return line.ends_with(':') && line.size() <= kLongest &&
         std::isupper(static_cast<unsigned char>(line.front())) != 0;
}

/// Headings, and the options, verbs and commands at the left.
std::string coloured(const std::string& line, const Terminal& out) {
  constexpr std::string_view kUsage = "Usage:";
  if (line.starts_with(kUsage))
    return out.styled(kUsage, Style::kBold) + line.substr(kUsage.size());
  if (is_heading(line))
    return out.styled(line, Style::kBold);
  if (!line.starts_with(kGap) || line.find_first_not_of(' ') != kGap.size())
    return line;
  const std::size_t end = std::min(line.find(kGap, kGap.size()), line.size());
  return std::string(kGap) +
         out.styled(line.substr(kGap.size(), end - kGap.size()), Style::kCyan) +
         line.substr(end);
}

}  // namespace

std::shared_ptr<CLI::Formatter> help_formatter() {
  auto formatter = std::make_shared<Formatter>();
  formatter->column_width(kColumn);
  formatter->label("REQUIRED", "");
  formatter->label("Positionals", "Arguments");
  return formatter;
}

void print_help(const Terminal& out, const std::string& text) {
  const std::size_t width =
      out.is_terminal() ? std::min(kWidth, static_cast<std::size_t>(out.width()))
                        : kWidth;
  std::istringstream lines(wrapped(text, width, kColumn));
  for (std::string line; std::getline(lines, line);) print(coloured(line, out) + "\n");
}

}  // namespace kiln::tools
