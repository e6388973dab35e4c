// The functions that are there and only return an error.

#pragma once

#include <span>

#include "tests/support/simulated_driver/functions.h"

namespace kiln::simulated {

[[nodiscard]] std::span<const DriverFunction> refused_functions();

/// Counts the call of `symbol`. CUDA_ERROR_NOT_SUPPORTED, or what comes before it:
/// an injected error, CUDA_ERROR_NOT_INITIALIZED.
int refuse(const char* symbol);

}  // namespace kiln::simulated
