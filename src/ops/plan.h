// What an operation launches, as data: the kernels, with parameters chosen for a device
// and a shape, and their arguments. Each family makes plans from its argument structs;
// run.h launches them. So a plan can be inspected, and run on a CPU, without a service.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kiln/geometry.h"
#include "kiln/request.h"
#include "ops/arguments.h"

namespace kiln::ops {

/// One launch. Kernel::geometry() computes the grid from `extents`.
struct Launch {
  std::string kernel;
  Parameters parameters;
  LaunchArguments extents;
  Arguments arguments;
  /// The entry point, for a kernel with several; empty: the first.
  std::string entry{};
};

/// In stream order. Empty: there is nothing to compute.
using Launches = std::vector<Launch>;

/// A plan of one launch, which a list in braces would copy.
[[nodiscard]] inline Launches just(Launch launch) {
  Launches all;
  all.push_back(std::move(launch));
  return all;
}

}  // namespace kiln::ops
