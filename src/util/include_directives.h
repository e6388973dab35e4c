// Finds the include directives of one text without preprocessing it: those of every #if
// branch, none in comments or literals. src/key resolves them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"

namespace kiln {

enum class Lookup : std::uint8_t {
  kQuoted,      // "x": the including file's folder, then the include directories
  kAngled,      // <x>: the include directories
  kNext,        // #include_next <x>: the directories after the including file's own
  kComputed,    // #include MACRO
  kComputedIf,  // __has_include(MACRO)
  kNextQuoted,  // #include_next "x": as kNext; in a text without a file, as "x"
  kPreInclude,  // --pre-include=x: as "x", whatever -no-source-include says
};

/// One #include, #include_next, __has_include or __has_include_next.
struct Directive {
  Lookup lookup = Lookup::kQuoted;
  std::string operand;  // without its quotes; for computed ones the tokens
  int line = 0;         // 0 unless computed: others need none
  friend bool operator==(const Directive&, const Directive&) = default;
};

/// __DATE__, __TIME__ or __TIMESTAMP__.
struct BuildTimeMacro {
  std::string name;
  int line = 0;
};

/// By name; one that has another value in another branch has each.
using PathMacroValues = std::map<std::string, std::set<std::string>, std::less<>>;

struct PathMacro {
  std::string name;
  std::string value;
};

struct Directives {
  std::vector<Directive> list;  // in the order of the text
  /// "x" and <x> that are the whole value of a macro, for __has_include(MACRO).
  std::vector<Directive> macro_values;
  /// Macros without parameters whose value is a part of a path: "cuda",
  /// "thrust/system".
  std::vector<PathMacro> path_macros;
  /// The first one that occurs, in any branch and in the values of macros; not in
  /// comments and literals, and not as the name of a #define.
  std::optional<BuildTimeMacro> build_time;
  /// __FILE__ or another word that can put the name of the text into the output occurs,
  /// as `build_time` does.
  bool names_file = false;
  /// How many bytes were looked at, where one that is looked at twice counts twice.
  std::uint64_t work = 0;
};

/// In one text.
inline constexpr std::size_t kMaxDirectives = 200'000;

/// Handles line splices, comments, string, character and raw string literals, digit
/// separators and the digraph %:, but no trigraphs (NVRTC has none). An unterminated
/// comment or raw string is read as if it had not begun: finding too much only changes
/// a key, finding too little would give a stale result. Cost: linear, whatever the
/// text. Errors: kCancelled soon after `stop` is requested; kResourceLimit
/// (kMaxDirectives, or more than 64 raw strings without an end).
[[nodiscard]] Result<Directives> find_directives(std::string_view text,
                                                 const std::stop_token& stop = {});

/// `path` with the values of `macros` in place of their names, over and over, once for
/// each value that a name has; `path` itself only if it has none of the names. At most
/// `most` of them.
[[nodiscard]] std::vector<std::string> with_path_macros(const std::string& path,
                                                        const PathMacroValues& macros,
                                                        std::size_t most);

}  // namespace kiln
