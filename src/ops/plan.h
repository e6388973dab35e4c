// What an operation launches, as data: the kernels with their parameters, chosen for a
// device and a shape, and the arguments they are given. A family's file makes one out
// of its argument struct; run.h starts it. So a plan can be looked at, and run on a
// CPU, without a service.

#pragma once

#include <string>
#include <vector>

#include "kiln/geometry.h"
#include "kiln/request.h"
#include "ops/arguments.h"

namespace kiln::ops {

/// One launch. Kernel::geometry() makes the grid of `extents`.
struct Launch {
  std::string kernel;
  Parameters parameters;
  LaunchArguments extents;
  Arguments arguments;
  /// Of a kernel with several entry points, which one.
  std::string entry{};
};

/// In the order in which they go to the stream. Empty: there is nothing to compute.
using Launches = std::vector<Launch>;

}  // namespace kiln::ops
