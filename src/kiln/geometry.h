// How a kernel is launched: the shape of its grid and its dynamic shared memory.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace kiln {

/// Launch argument name to value: {{"rows", 4096}, {"cols", 1024}}.
using LaunchArguments = std::map<std::string, std::int64_t>;

struct Geometry {
  std::array<std::uint32_t, 3> grid{1, 1, 1};   // blocks in x, y, z
  std::array<std::uint32_t, 3> block{1, 1, 1};  // threads in x, y, z
  std::uint32_t shared_bytes = 0;               // dynamic, a block
  friend bool operator==(const Geometry&, const Geometry&) = default;
};

}  // namespace kiln
