// What Python gives to an operation, as text that follows from its header: the tensors
// and the options of the C struct, by name.

#pragma once

#include <span>
#include <string>

#include "interface/operation_header.h"
#include "kiln/result.h"

namespace kiln::interface {

/// python/operation_parameters.h: Parameters of each struct that an operation takes,
/// and the functions of each operation that takes one struct. Errors: kInvalidArgument.
[[nodiscard]] Result<std::string> python_parameters(
    std::span<const OperationHeader> headers);

}  // namespace kiln::interface
