// An operation's public header (kiln/ops/*.h), read as the table of its arguments:
// structs with their fields and defaults, enumerations, functions. The C interface and
// the binding of names are written from it.

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kiln/result.h"

namespace kiln::interface {

/// Of Kiln: major, minor.
using Version = std::pair<int, int>;

/// "const void* weight = nullptr;", behind KILN_SINCE(0, 2) if a later version than the
/// first has it, and KILN_OPTION.
struct Field {
  std::string type;  // "const void*"
  std::string name;
  std::string initial;     // "nullptr"; empty: no initializer, or {}
  Version since{};         // {0, 0}: all versions have it
  bool is_option = false;  // KILN_OPTION
  /// Of KILN_TENSOR(type, extents...), which are sizes of the struct.
  std::vector<std::string> tensor{};
  std::string flag{};  // of KILN_TENSOR_IF(flag, type, extents...)

  [[nodiscard]] bool is_pointer() const { return type.ends_with('*'); }
};

struct Struct {
  std::string name;
  std::string base;  // empty: none
  std::vector<Field> fields;
};

/// Of one byte, its values counted from 0.
struct Enumeration {
  std::string name;
  std::vector<std::string> values;  // "kNone"
};

/// A function that takes a stream.
struct Operation {
  std::string name;                    // "rmsnorm_forward"
  std::vector<std::string> arguments;  // structs, "RmsNormForward"
  bool has_workspace = false;          // there is <name>_workspace_bytes()
};

struct OperationHeader {
  std::string path;  // "kiln/ops/norm.h"
  std::vector<Enumeration> enumerations;
  std::vector<Struct> structs;  // in the header's order: none before its members' types
  std::vector<Operation> operations;

  [[nodiscard]] const Struct* find_struct(std::string_view name) const;
  [[nodiscard]] const Enumeration* find_enumeration(std::string_view name) const;
  /// Those of its base come first.
  [[nodiscard]] std::vector<Field> all_fields(const Struct& of) const;
};

/// Errors: kInvalidArgument, naming the statement that is not of these forms.
[[nodiscard]] Result<OperationHeader> read_operation_header(std::string path,
                                                            std::string_view text);

}  // namespace kiln::interface
