// PTX text as it is written: variables, functions and statements, with no meaning yet.
// Views point into the text.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "tests/support/ptx/types.h"

namespace kiln::ptx::syntax {

struct Argument {
  enum class Kind : std::uint8_t {
    kName,     // a register, a label, a variable or a function
    kInteger,  // value
    kFloat,    // value: the bits of a double
    kFloat32,  // value: 0f3F800000
    kFloat64,  // value: 0d3FF0000000000000
    kAddress,  // [parts[0] + value], and coordinates behind
    kVector,   // {parts}
    kList,     // (parts)
    kNone,     // _
  };
  Kind kind = Kind::kNone;
  std::string_view name{};
  std::string_view second{};  // p of d|p
  std::uint64_t value = 0;
  bool is_negated = false;  // !p
  std::vector<Argument> parts{};
};

struct Guard {
  std::string_view predicate{};
  bool is_negated = false;
};

struct Statement {
  std::string_view opcode{};                  // "ld"
  std::vector<std::string_view> modifiers{};  // "global", "nc", "f32"
  std::vector<Argument> arguments{};
  Guard guard{};
  std::string_view text{};  // all of it, for messages
  unsigned scope = 0;       // among the function's
  unsigned file = 0;        // of the source, from .loc
  unsigned line = 0;        // 0 for none
};

enum class Space : std::uint8_t {
  kRegister,
  kGeneric,
  kGlobal,
  kConst,
  kShared,
  kLocal,
  kParam
};

struct Variable {
  std::string_view name{};
  Space space = Space::kGlobal;
  Type type{};
  std::size_t alignment = 1;
  std::size_t size = 0;             // in bytes; 0 for an array without extent
  unsigned repeats = 0;             // .reg %r<12>
  std::vector<Argument> initial{};  // flat; names stand for their addresses
};

struct Label {
  std::string_view name{};
  std::size_t at = 0;  // the statement behind it
};

/// .branchtargets and .calltargets
struct Table {
  std::string_view name{};
  std::vector<std::string_view> targets{};
};

/// What is between braces; the function's body is the first.
struct Scope {
  unsigned parent = 0;
  std::vector<Variable> variables{};
  std::vector<Label> labels{};
  std::vector<Table> tables{};
};

struct Function {
  std::string_view name{};
  bool is_entry = false;
  bool has_body = false;
  std::vector<Variable> results{};
  std::vector<Variable> parameters{};
  std::vector<Scope> scopes{};
  std::vector<Statement> statements{};
};

struct Module {
  std::string text{};  // the views' own
  std::vector<Variable> variables{};
  std::vector<Function> functions{};
  std::vector<std::string_view> files{};  // of .file, by number
};

/// Errors: why, with the line of the text.
[[nodiscard]] tl::expected<Module, std::string> parse(std::string text);

}  // namespace kiln::ptx::syntax
