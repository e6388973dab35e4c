// Finds the include directives of one text without preprocessing it: those of every
// branch, none in comments or literals. What they find is src/key's to know.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

enum class Lookup : std::uint8_t {
  kQuoted,      // "x": the including file's folder, then the include directories
  kAngled,      // <x>: the include directories
  kNext,        // #include_next <x>: the directories behind the including file's own
  kComputed,    // #include MACRO
  kComputedIf,  // __has_include(MACRO)
  kNextQuoted,  // #include_next "x": the same; of a text without a file, as "x"
  kPreInclude,  // --pre-include=x: as "x", whatever -no-source-include says
};

/// One #include, #include_next, __has_include or __has_include_next.
struct Directive {
  Lookup lookup = Lookup::kQuoted;
  std::string operand;  // without its quotes; for computed ones the tokens
  int line = 0;         // 0 unless computed: nobody asks for the others
  friend bool operator==(const Directive&, const Directive&) = default;
};

struct Directives {
  std::vector<Directive> list;  // in the order of the text
  /// "x" and <x> that are the whole value of a macro: what __has_include(MACRO) may
  /// mean.
  std::vector<Directive> macro_values;
};

/// Line splices, comments, string, character and raw string literals, digit separators
/// and the digraph %: are understood; trigraphs are not (NVRTC has none). Where a
/// comment or raw string never ends, the text goes on as if it had not begun: finding
/// too much costs a key, finding too little would cost a stale result. Cost: linear.
[[nodiscard]] Directives find_directives(std::string_view text);

/// The directive that a macro value spells, "x" or <x>, into `out`; else nothing.
void add_macro_value(std::string_view value, std::vector<Directive>& out);

}  // namespace kiln
