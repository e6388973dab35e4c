// How a kernel is launched: its grid, blocks, clusters and dynamic shared memory.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace kiln {

/// Launch argument name to value: {{"rows", 4096}, {"cols", 1024}}.
using LaunchArguments = std::map<std::string, std::int64_t>;

/// What cuLaunchKernel takes. A grid with an extent of 0 launches nothing; a block with
/// one is an error.
struct Geometry {
  std::array<std::uint32_t, 3> grid{1, 1, 1};   // blocks in x, y, z
  std::array<std::uint32_t, 3> block{1, 1, 1};  // threads in x, y, z
  std::uint32_t shared_bytes = 0;               // dynamic, per block
  // Blocks per cluster in x, y, z; grid.x must be a multiple of cluster.x, and so on.
  // Anything but 1, 1, 1 needs compute capability 9.0 or later.
  std::array<std::uint32_t, 3> cluster{1, 1, 1};
  bool cooperative = false;  // cooperative launch: all blocks are resident at once
  friend bool operator==(const Geometry&, const Geometry&) = default;
};

}  // namespace kiln
