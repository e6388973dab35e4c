// How a kernel is launched: its grid, blocks, clusters and dynamic shared memory.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
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

  // Hints: where the device or its driver does not know them, they are left out.

  /// Programmatic dependent launch: the kernel may begin before the kernel before it in
  /// the stream has ended, and waits for its results by griddepcontrol.wait
  /// (cudaGridDependencySynchronize). Compute capability 9.0 or later.
  bool programmatic = false;
  /// As that of a stream: the least number runs first. nullopt: the stream's.
  std::optional<int> priority{};
  /// Larger clusters than `cluster`, where the device has room for them: multiples of
  /// `cluster` that divide the grid. Zeros: none. Compute capability 10.0 or later.
  std::array<std::uint32_t, 3> preferred_cluster{0, 0, 0};
  friend bool operator==(const Geometry&, const Geometry&) = default;
};

}  // namespace kiln
