// Running a program with simulated devices in the place of a CUDA driver:
// docs/testing.md.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kiln/result.h"

namespace kiln::tools {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// With these a program and its children find the simulated driver as libcuda.so.1, and
/// in it devices of these compute capabilities, "8.6,9.0". Errors: kInvalidArgument;
/// kUnavailable: there is no test kit here.
[[nodiscard]] Result<Variables> simulation(const std::string& capabilities);

}  // namespace kiln::tools
