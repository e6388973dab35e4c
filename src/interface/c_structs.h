// The structs of an operation's header as C has them.

#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "interface/operation_header.h"
#include "kiln/result.h"

namespace kiln::interface {

/// "SoftmaxMask" as "softmax_mask", "kBf16" as "bf16".
[[nodiscard]] std::string snake(std::string_view name);
[[nodiscard]] std::string upper(std::string text);

/// The name in C of a struct that the operation takes: "kiln_softmax_forward_args", or
/// "kiln_attention_problem" where it takes several.
[[nodiscard]] std::string c_name(const Operation& operation, std::string_view name);

/// A field, and where C++ has it.
struct CField {
  std::string type;
  std::string name;
  std::string initial;   // empty: 0
  std::string path;      // "q.out_strides"
  std::string cpp_type;  // std::optional<float> is two fields: has_NAME, NAME
  Version since;         // as Field::since
  bool is_option = false;
  std::vector<std::string> tensor{};  // as of Field
  std::string flag{};
};

struct CStruct {
  std::string name;       // "kiln_rope_strides"
  std::string cpp_name;   // "RopeStrides"
  bool has_size = false;  // it begins with struct_size, and may grow
  std::vector<CField> fields;

  [[nodiscard]] std::string init() const;  // its macro
  [[nodiscard]] bool is_all_zero() const;
};

/// Whether the field is the first of its version: it begins at the size that the struct
/// had, never in the padding, which no older program initializes.
[[nodiscard]] bool begins_version(const CStruct& of, std::size_t field);

/// In bytes, as the x86-64 and AArch64 ABIs of Linux lay a struct out.
struct CLayout {
  std::vector<std::size_t> offsets;  // of the fields
  std::size_t bytes = 0;
  std::size_t alignment = 1;
};

struct CStructs {
  std::vector<CStruct> structs;        // none before those that it contains
  std::set<std::string> enumerations;  // by their names in C++

  [[nodiscard]] const CStruct* find(std::string_view name) const;
  [[nodiscard]] CLayout layout(const CStruct& of) const;
};

/// The structs that operations take. A field of a struct with pointers is its fields,
/// named "q_out"; a struct of numbers stays a struct. Errors: kInvalidArgument, a type
/// or a default that C has no form for.
[[nodiscard]] Result<CStructs> c_structs(const OperationHeader& header);

}  // namespace kiln::interface
