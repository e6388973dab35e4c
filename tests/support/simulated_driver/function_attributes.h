// A function's attributes, whether it is asked for in a context (cuFunc) or by device
// (cuKernel).

#pragma once

#include <optional>

#include "tests/support/simulated_driver/simulator.h"

namespace kiln::simulated {

/// nullopt for an attribute that there is not.
[[nodiscard]] std::optional<int> function_attribute(const Image& image,
                                                    const EntryPoint& entry,
                                                    const FunctionSettings& settings,
                                                    const DeviceModel& model,
                                                    CUfunction_attribute which);

/// CUDA_ERROR_INVALID_VALUE for one that cannot be set, or not to that.
[[nodiscard]] CUresult set_function_attribute(const EntryPoint& entry,
                                              const DeviceModel& model,
                                              CUfunction_attribute which, int value,
                                              FunctionSettings& settings);

/// Threads of a block that the kernel's registers and its own bounds allow.
[[nodiscard]] int max_threads(const EntryPoint& entry);

/// The dynamic shared memory that a launch may ask for as things are set.
[[nodiscard]] int max_dynamic_shared_bytes(const EntryPoint& entry,
                                           const FunctionSettings& settings);

}  // namespace kiln::simulated
