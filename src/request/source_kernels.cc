#include "request/source_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "util/ascii.h"
#include "util/printable.h"

namespace kiln::request {
namespace {

/// Words and characters of a text, without comments, literals, blanks and the lines of
/// the preprocessor.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : rest_(text) {}

  /// Empty at the end.
  std::string_view next() {
    skip();
    if (rest_.empty())
      return {};
    std::size_t size = 1;
    if (rest_[0] == '"' || rest_[0] == '\'')
      size = literal_size();
    else if (is_name_char(rest_[0]))
      size = static_cast<std::size_t>(
          std::find_if_not(rest_.begin(), rest_.end(), is_name_char) - rest_.begin());
    const std::string_view token = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return token;
  }

 private:
  void skip() {
    for (;;) {
      const std::size_t blanks =
          std::min(rest_.find_first_not_of(" \t\n\v\f\r"), rest_.size());
      begins_line_ |= rest_.substr(0, blanks).find('\n') != std::string_view::npos;
      rest_.remove_prefix(blanks);
      const bool is_directive = begins_line_ && rest_.starts_with('#');
      if (is_directive || rest_.starts_with("//"))
        remove_line();
      else if (rest_.starts_with("/*"))
        remove_through("*/");
      else
        break;
    }
    begins_line_ = false;
  }
  /// With those that a backslash adds to it; the newline stays.
  void remove_line() {
    std::size_t end = rest_.find('\n');
    while (end != std::string_view::npos && end > 0 && rest_[end - 1] == '\\')
      end = rest_.find('\n', end + 1);
    rest_.remove_prefix(std::min(end, rest_.size()));
  }
  void remove_through(std::string_view end) {
    const std::size_t at = rest_.find(end, 2);
    rest_.remove_prefix(at == std::string_view::npos ? rest_.size() : at + end.size());
  }
  [[nodiscard]] std::size_t literal_size() const {
    for (std::size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '\\')
        ++i;
      else if (rest_[i] == rest_[0] || rest_[i] == '\n')
        return i + 1;
    }
    return rest_.size();
  }

  std::string_view rest_;
  bool begins_line_ = true;  // but for blanks and comments
};

/// Behind "(": up to the ")" that belongs to it.
void skip_parentheses(Tokens& tokens) {
  int depth = 1;
  while (depth > 0) {
    const std::string_view token = tokens.next();
    if (token.empty())
      return;
    depth += token == "(" ? 1 : token == ")" ? -1 : 0;
  }
}

/// Behind __global__: the word before the parameters. Attributes with parentheses, such
/// as __launch_bounds__(128), begin and end with two underscores.
std::string_view name_of_kernel(Tokens& tokens) {
  std::string_view last;
  for (;;) {
    const std::string_view token = tokens.next();
    if (token.empty() || token == ";" || token == "{" || token == "}")
      return {};
    if (token != "(") {
      last = token;
      continue;
    }
    if (!last.starts_with("__") && !last.empty() && is_name_char(last.front()))
      return last;
    skip_parentheses(tokens);
  }
}

}  // namespace

std::vector<SourceKernel> kernels_in(std::string_view source) {
  std::vector<SourceKernel> kernels;
  std::unordered_set<std::string_view> known;
  Tokens tokens(source);
  bool is_template = false;  // of the declaration that the next token is part of
  for (std::string_view token = tokens.next(); !token.empty(); token = tokens.next()) {
    if (token == "template")
      is_template = true;
    else if (token == ";" || token == "{" || token == "}")
      is_template = false;
    if (token != "__global__")
      continue;
    const std::string_view name = name_of_kernel(tokens);
    if (!name.empty() && known.insert(name).second)
      kernels.push_back({std::string(name), is_template});
    is_template = false;
  }
  return kernels;
}

std::string source_label(const std::filesystem::path& file,
                         std::vector<std::string> kernels) {
  constexpr std::size_t kShown = 8;
  constexpr std::size_t kMostBytes = 120;  // of a name
  std::string label = printable(
      file.is_absolute() ? file.filename().native() : file.native(), kMostBytes);
  const std::size_t shown = std::min(kShown, kernels.size());
  std::ranges::partial_sort(kernels,
                            kernels.begin() + static_cast<std::ptrdiff_t>(shown));
  for (std::size_t i = 0; i < shown; ++i) {
    label += i == 0 ? ": " : ", ";
    label += printable(kernels[i], kMostBytes);
  }
  if (shown < kernels.size())
    label += fmt::format(" and {} more", kernels.size() - shown);
  return label;
}

}  // namespace kiln::request
