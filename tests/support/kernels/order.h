// In which order the interpreter runs the blocks, warps and lanes of a launch.

#pragma once

#include <cstdint>

namespace kiln_cpu {

/// Ascending: in their order, the lanes of a warp together. The others: in orders of
/// their own, the same each time, with warps split; descending also looks for races in
/// shared memory and for reads of memory that was never written.
enum class Order : std::uint8_t { kAscending, kDescending, kShuffled };

}  // namespace kiln_cpu
