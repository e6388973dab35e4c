// What Python gives to an operation, as text that follows from its header: the tensors
// and the options of the C struct, by name.

#pragma once

#include <span>
#include <string>

#include "interface/operation_header.h"
#include "kiln/result.h"

namespace kiln::interface {

/// python/operation_parameters.h: Parameters<kiln_..._args> of each operation with one
/// struct. Errors: kInvalidArgument.
[[nodiscard]] Result<std::string> python_parameters(
    std::span<const OperationHeader> headers);

}  // namespace kiln::interface
