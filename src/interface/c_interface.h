// The C interface of the operations, as text that follows from their headers.

#pragma once

#include <span>
#include <string>

#include "interface/operation_header.h"

namespace kiln::interface {

/// kiln/c_operations.h: enumerations, structs with their _INIT macros, prototypes.
/// Errors: kInvalidArgument, a type or a default that C has no form for.
[[nodiscard]] Result<std::string> c_header(std::span<const OperationHeader> headers);

/// c/operation_structs.h: from_c() of each struct.
[[nodiscard]] Result<std::string> c_glue(std::span<const OperationHeader> headers);

/// ops/operation_table.h: the operations by name, and the pointers of their arguments.
[[nodiscard]] Result<std::string> operation_table(
    std::span<const OperationHeader> headers);

/// interface/enumeration_words.h: the words of each enumeration (util/words.h).
[[nodiscard]] std::string enumeration_words(std::span<const OperationHeader> headers);

}  // namespace kiln::interface
