// A template's text: Mustache with <% %>, made strict. templates/README.md, "The text".

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"

namespace kiln::render {

/// What a name may be used as.
enum class NameKind : std::uint8_t {
  kValue,    // <%name%>
  kBoolean,  // <%name%> as true or false, and <%#name%>, <%^name%>
};
using TextNames = std::map<std::string, NameKind, std::less<>>;

/// The text of each name; of a boolean "true" or "false".
using TextValues = std::map<std::string, std::string, std::less<>>;

inline constexpr std::size_t kMaxTextBytes = 1U << 20U;
inline constexpr std::size_t kMaxSectionDepth = 32;

/// A parsed text. Immutable. Thread safety: any number of threads may use one.
class TemplateText {
 public:
  TemplateText() = default;  // no text at all

  /// `file` is for messages. Checks everything that does not depend on the names.
  /// Errors: kInvalidArgument, "<file>:<line>: <what is wrong>".
  [[nodiscard]] static Result<TemplateText> parse(std::string_view text,
                                                  std::string file);

  /// Errors: kInvalidArgument for a tag with an unknown name and for a section over a
  /// name that is no boolean, with file, line and the nearest name.
  [[nodiscard]] Result<void> check(const TextNames& names) const;

  /// Inserts the values and keeps the number of lines. Equal values give equal bytes.
  /// Errors: kInvalidArgument if a name has no value.
  [[nodiscard]] Result<std::string> render(const TextValues& values) const;

 private:
  enum class PieceKind : std::uint8_t {
    kText,
    kValue,
    kSection,
    kInvertedSection,
    kEnd,
    kComment
  };
  struct Piece {
    PieceKind kind;
    std::string text;  // for a tag, its name
    std::size_t line;  // where it begins, from 1
  };
  friend class TextScanner;

  std::string file_;
  std::vector<Piece> pieces_;
};

/// Whether `line` begins with "#include", perhaps with blanks around its '#'.
[[nodiscard]] bool is_include_line(std::string_view line);

/// Whether `text` has an #include or __has_include, or __DATE__, __TIME__ or
/// __TIMESTAMP__, in any branch: then more than the text determines the build.
[[nodiscard]] bool has_include(std::string_view text);

}  // namespace kiln::render
