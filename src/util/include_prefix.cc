#include "util/include_prefix.h"

#include <cstddef>

namespace kiln {
namespace {

/// Walks over comments, blanks and directives.
class PrefixWalk {
 public:
  explicit PrefixWalk(std::string_view text) : text_(text) {}

  std::string_view run() {
    std::size_t end = 0;
    int depth = 0;
    bool includes = false;
    while (skip_to_token() && text_[at_] == '#') {
      const std::string_view name = directive();
      if (name.starts_with("if"))
        ++depth;
      else if (name == "endif")
        --depth;
      includes = includes || name.starts_with("include");
      if (depth == 0 && includes) {
        end = at_;
        includes = false;
      }
    }
    return text_.substr(0, end);
  }

 private:
  [[nodiscard]] bool ended() const { return at_ >= text_.size(); }
  [[nodiscard]] bool at(std::string_view token) const {
    return text_.substr(at_).starts_with(token);
  }

  /// A line splice or a comment, with the newlines in it. One without an end has all.
  bool skip_splice_or_comment() {
    if (at("\\\n")) {
      at_ += 2;
    } else if (at("\\\r\n")) {
      at_ += 3;
    } else if (at("/*")) {
      const std::size_t end = text_.find("*/", at_ + 2);
      at_ = end == std::string_view::npos ? text_.size() : end + 2;
    } else if (at("//")) {
      while (!ended() && text_[at_] != '\n') {
        if (at("\\\n"))
          ++at_;
        ++at_;
      }
    } else {
      return false;
    }
    return true;
  }

  /// To what is neither blank nor comment; false at the end of the text.
  bool skip_to_token() {
    while (!ended()) {
      if (skip_splice_or_comment())
        continue;
      if (std::string_view(" \t\r\v\f\n").find(text_[at_]) == std::string_view::npos)
        return true;
      ++at_;
    }
    return false;
  }

  /// The name of the directive that begins here; goes behind the end of its line.
  std::string_view directive() {
    ++at_;
    while (!ended() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    const std::size_t begin = at_;
    while (!ended() && text_[at_] >= 'a' && text_[at_] <= 'z') ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    // A "//" in quotes is no comment: an operand such as "https://x".
    bool quoted = false;
    while (!ended()) {
      if (!quoted && skip_splice_or_comment())
        continue;
      const char c = text_[at_++];
      if (c == '\n')
        break;
      if (c == '"')
        quoted = !quoted;
      else if (c == '\\' && !ended())
        ++at_;
    }
    return name;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string_view include_prefix(std::string_view source) {
  return PrefixWalk(source).run();
}

}  // namespace kiln
