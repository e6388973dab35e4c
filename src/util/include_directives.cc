#include "util/include_directives.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "util/ascii.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln {
namespace {

constexpr std::size_t kMaxRawDelimiter = 16;  // [lex.string]
// Each one costs a look at the rest of the text.
constexpr std::size_t kMaxEndlessRawStrings = 64;
constexpr std::size_t kMaxShownTokens = 100;  // of a computed operand
constexpr std::size_t kStopInterval = 64U << 10U;

bool is_identifier_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 0x80U;
}
bool is_identifier(char c) {
  return is_identifier_start(c) || is_digit(c);
}
bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

bool is_raw_prefix(std::string_view word) {
  constexpr std::array<std::string_view, 5> kPrefixes = {"R", "u8R", "uR", "UR", "LR"};
  return std::find(kPrefixes.begin(), kPrefixes.end(), word) != kPrefixes.end();
}

bool is_build_time(std::string_view word) {
  return word == "__DATE__" || word == "__TIME__" || word == "__TIMESTAMP__";
}

// Appends the directive to `out` if the macro value is "x" or <x>.
void add_macro_value(std::string_view value, std::vector<Directive>& out) {
  value = trimmed(value, " \t\r\v\f");
  if (value.size() < 3)
    return;
  const std::string_view inner = value.substr(1, value.size() - 2);
  if (value.front() == '"' && value.back() == '"' && inner.find('"') == inner.npos)
    out.push_back({Lookup::kQuoted, std::string(inner), 0});
  else if (value.front() == '<' && value.back() == '>')
    out.push_back({Lookup::kAngled, std::string(inner), 0});
}

// Begins with a small letter, as few values do that are no part of a path.
bool is_part_of_path(std::string_view value) {
  constexpr std::size_t kLongest = 200;
  return !value.empty() && value.size() <= kLongest && value[0] >= 'a' &&
         value[0] <= 'z' && std::ranges::all_of(value, [](char c) {
           return is_identifier(c) || c == '/' || c == '.' || c == '-' || c == '+';
         });
}

bool is_file_name(std::string_view word) {
  constexpr std::array<std::string_view, 6> kWords = {
      "__FILE__",       "__FILE_NAME__",   "__BASE_FILE__",
      "__builtin_FILE", "source_location", "assert"};
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

// Finds the next place of one token. Remembers it, so that all questions together look
// at each byte once, as long as they do not go backwards.
class NextPlace {
 public:
  explicit NextPlace(std::string_view token) : token_(token) {}

  // The first place at or behind `from`, npos if there is none. Adds to `work`.
  std::size_t find(std::string_view text, std::size_t from, std::uint64_t& work) {
    if (from_ <= from && from <= place_)
      return place_;
    from_ = from;
    place_ = text.find(token_, from);
    work += std::min(place_, text.size()) - std::min(from, text.size());
    return place_;
  }

 private:
  const std::string_view token_;
  std::size_t from_ = 1;  // place_ is the first place behind this one
  std::size_t place_ = 0;
};

// A text without its line splices, and where they were.
struct Spliced {
  std::string text;
  std::vector<std::size_t> removed;  // offsets in `text`
};

Spliced splice(std::string_view text) {
  Spliced result;
  result.text.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      const std::size_t next = text.substr(i + 1).starts_with("\r\n") ? i + 2 : i + 1;
      if (next < text.size() && text[next] == '\n') {
        result.removed.push_back(result.text.size());
        i = next;
        continue;
      }
    }
    result.text.push_back(text[i]);
  }
  return result;
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::vector<std::size_t>& removed,
        const std::stop_token& stop)
      : text_(text), removed_(removed), stop_(stop) {}

  Result<Directives> run() {
    for (std::size_t look = 0; at_ < text_.size(); step()) {
      if (at_ + found_.work >= look) {  // one step may look at all that is left
        KILN_TRY(check());
        look = at_ + found_.work + kStopInterval;
      }
    }
    KILN_TRY(check());
    found_.work += text_.size();
    return std::move(found_);
  }

 private:
  enum class Line : std::uint8_t { kStart, kCode, kCondition };

  [[nodiscard]] Result<void> check() const {
    if (stop_.stop_requested())
      return fail(ErrorCode::kCancelled, "stopped while its headers were searched");
    if (found_.list.size() > kMaxDirectives)
      return fail(ErrorCode::kResourceLimit,
                  "over {} #include directives in one text: split it", kMaxDirectives);
    if (endless_raw_strings_ > kMaxEndlessRawStrings)
      return fail(ErrorCode::kResourceLimit,
                  "over {} raw string literals without an end in one text: end them",
                  kMaxEndlessRawStrings);
    return {};
  }

  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  [[nodiscard]] bool sees(std::string_view token) const {
    return text_.substr(at_).starts_with(token);
  }

  void step() {
    const char c = peek();
    if (c == '\n') {
      ++at_;
      line_ = Line::kStart;
    } else if (is_blank(c) || sees("//") || sees("/*")) {
      skip_blanks();
    } else if (line_ == Line::kStart && (c == '#' || sees("%:"))) {
      at_ += c == '#' ? 1 : 2;
      line_ = Line::kCode;
      directive();
    } else {
      if (line_ == Line::kStart)
        line_ = Line::kCode;
      token(c);
    }
  }

  void token(char c) {
    if (is_identifier_start(c)) {
      identifier();
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      number();
    } else if (c == '"') {
      // A string in a condition can only be for a macro around __has_include.
      if (line_ != Line::kCondition || !add_literal(Lookup::kQuoted))
        skip_literal('"');
    } else if (c == '\'') {
      skip_literal('\'');
    } else {
      ++at_;
      if (c == '(' && line_ == Line::kCondition)
        angled_argument();
    }
  }

  // `HAS(<x.h>)` in a condition, where HAS is a macro around __has_include.
  void angled_argument() {
    skip_blanks();
    if (peek() == '<')
      add_literal(Lookup::kAngled);
  }

  // Skips blanks and comments up to the next token or the end of the line. Always
  // advances if it starts at one.
  void skip_blanks() {
    while (at_ < text_.size()) {
      if (is_blank(peek())) {
        ++at_;
      } else if (sees("//")) {
        at_ = line_end();
      } else if (sees("/*")) {
        const std::size_t end = comment_end_.find(text_, at_ + 2, found_.work);
        at_ = end == std::string_view::npos ? at_ + 2 : end + 2;
      } else {
        return;
      }
    }
  }

  std::string_view word() {
    const std::size_t begin = at_;
    while (is_identifier(peek()) && at_ < text_.size()) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  void identifier() {
    const std::string_view name = word();
    if (peek() == '"' && is_raw_prefix(name))
      skip_raw_string();
    else if (name == "__has_include")
      has_include(Lookup::kQuoted, Lookup::kAngled);
    else if (name == "__has_include_next")
      has_include(Lookup::kNextQuoted, Lookup::kNext);
    else if (!found_.build_time && is_build_time(name))
      found_.build_time = BuildTimeMacro{std::string(name), line_number()};
    else if (is_file_name(name))
      found_.names_file = true;
  }

  // A preprocessing number: 1'000, 0x1p-3, 1.5e+3f.
  void number() {
    while (at_ < text_.size()) {
      const char c = peek();
      const char next = peek(1);
      const bool exponent = c == 'e' || c == 'E' || c == 'p' || c == 'P';
      if ((exponent && (next == '+' || next == '-')) ||
          (c == '\'' && is_identifier(next)))
        at_ += 2;
      else if (is_identifier(c) || c == '.')
        ++at_;
      else
        return;
    }
  }

  // A literal that does not end on its line is a lone quote in a skipped branch.
  void skip_literal(char quote) {
    ++at_;
    while (at_ < text_.size() && peek() != '\n') {
      const char c = peek();
      at_ += c == '\\' && peek(1) != '\n' ? 2 : 1;
      if (c == quote)
        return;
    }
    at_ = std::min(at_, text_.size());
  }

  void skip_raw_string() {
    const std::string_view begin = text_.substr(at_ + 1, kMaxRawDelimiter + 1);
    const std::size_t open = begin.find('(');
    if (open == std::string_view::npos || endless_raw_strings_ > kMaxEndlessRawStrings)
      return skip_literal('"');
    std::string end = ")";
    end.append(begin.substr(0, open)).push_back('"');
    const std::size_t close = text_.find(end, at_ + 1 + open);
    found_.work += std::min(close, text_.size()) - at_;
    if (close == std::string_view::npos) {
      ++endless_raw_strings_;
      return skip_literal('"');
    }
    at_ = close + end.size();
  }

  void directive() {
    skip_blanks();
    const std::string_view name = word();
    if (name == "include") {
      operand(Lookup::kQuoted, Lookup::kAngled, Lookup::kComputed);
    } else if (name == "include_next") {
      operand(Lookup::kNextQuoted, Lookup::kNext, Lookup::kComputed);
    } else if (name == "if" || name == "elif") {
      line_ = Line::kCondition;
    } else if (name == "define") {
      skip_blanks();
      const std::string_view defined = word();
      const bool has_parameters = peek() == '(';
      if (has_parameters)
        skip_parameters();
      // The lexer then reads the value as any other text, for a __has_include in it.
      if (has_parameters || is_blank(peek()) || peek() == '/') {
        const std::string_view value = trimmed(rest_of_line(text_.size()));
        add_macro_value(value, found_.macro_values);
        if (!has_parameters && is_part_of_path(value))
          found_.path_macros.push_back({std::string(defined), std::string(value)});
      }
    }
  }

  // Moves past the ")", if it is on this line.
  void skip_parameters() {
    const std::string_view rest = text_.substr(at_, line_end() - at_);
    found_.work += rest.size();
    if (const std::size_t close = rest.find(')'); close != rest.npos)
      at_ += close + 1;
  }

  void has_include(Lookup quoted, Lookup angled) {
    skip_blanks();
    if (peek() != '(')  // `defined(__has_include)`, `#define HAS __has_include`
      return;
    ++at_;
    operand(quoted, angled, Lookup::kComputedIf);
  }

  void operand(Lookup quoted, Lookup angled, Lookup computed) {
    skip_blanks();
    const char open = peek();
    if (open == '"' && add_literal(quoted))
      return;
    if (open == '<' && add_literal(angled))
      return;
    found_.list.push_back(
        {computed, std::string(rest_of_line(kMaxShownTokens)), line_number()});
  }

  // Reads "x" or <x> at the cursor and moves past it; false if it does not end.
  bool add_literal(Lookup lookup) {
    NextPlace& close = peek() == '"' ? quote_ : angle_;
    const std::size_t begin = at_ + 1;
    const std::size_t end = close.find(text_, begin, found_.work);
    if (end == std::string_view::npos || line_end() < end)
      return false;
    found_.list.push_back({lookup, std::string(text_.substr(begin, end - begin)), 0});
    at_ = end + 1;
    return true;
  }

  std::size_t line_end() {
    return std::min(newline_.find(text_, at_, found_.work), text_.size());
  }

  // Up to a comment, at most `most` bytes. In "x" and <x> at its begin is none.
  std::string_view rest_of_line(std::size_t most) {
    const std::string_view rest = text_.substr(at_, std::min(most, line_end() - at_));
    found_.work += rest.size();
    const std::size_t open = std::min(rest.find_first_not_of(" \t"), rest.size());
    std::size_t close = rest.npos;
    if (open < rest.size() && (rest[open] == '"' || rest[open] == '<'))
      close = rest.find(rest[open] == '"' ? '"' : '>', open + 1);
    const std::size_t from = close == rest.npos ? 0 : close;
    return rest.substr(0, std::min(rest.find("//", from), rest.find("/*", from)));
  }

  int line_number() {
    const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(counted_to_);
    const auto here = text_.begin() + static_cast<std::ptrdiff_t>(at_);
    breaks_ += std::count(begin, here, '\n');
    found_.work += at_ - counted_to_;
    counted_to_ = at_;
    const auto splices =
        std::upper_bound(removed_.begin(), removed_.end(), at_) - removed_.begin();
    return static_cast<int>(1 + breaks_ + splices);
  }

  const std::string_view text_;
  const std::vector<std::size_t>& removed_;
  const std::stop_token& stop_;
  std::size_t at_ = 0;
  NextPlace newline_{"\n"};
  NextPlace comment_end_{"*/"};
  NextPlace quote_{"\""};
  NextPlace angle_{">"};
  std::ptrdiff_t breaks_ = 0;  // line breaks before counted_to_
  std::size_t counted_to_ = 0;
  std::size_t endless_raw_strings_ = 0;
  Line line_ = Line::kStart;
  Directives found_;
};

}  // namespace

std::vector<std::string> with_path_macros(const std::string& path,
                                          const PathMacroValues& macros,
                                          std::size_t most) {
  std::vector<std::string> done;
  std::vector<std::string> open = {path};
  for (std::size_t tried = 0; !open.empty() && tried < most; ++tried) {
    const std::string next = std::move(open.back());
    open.pop_back();
    bool is_done = true;
    for (std::size_t at = 0; is_done && at < next.size();) {
      std::size_t end = at;
      while (end < next.size() && is_identifier(next[end])) ++end;
      const auto macro = macros.find(std::string_view(next).substr(at, end - at));
      is_done = macro == macros.end();
      if (!is_done) {
        for (const std::string& value : macro->second)
          open.push_back(next.substr(0, at) + value + next.substr(end));
      }
      at = std::max(end, at + 1);
    }
    if (is_done)
      done.push_back(next);
  }
  return done;
}

Result<Directives> find_directives(std::string_view text, const std::stop_token& stop) {
  if (text.find("\\\n") == text.npos && text.find("\\\r\n") == text.npos)
    return Lexer(text, {}, stop).run();
  const Spliced spliced = splice(text);
  return Lexer(spliced.text, spliced.removed, stop).run();
}

}  // namespace kiln
