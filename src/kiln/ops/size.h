// The sizes of tensors.

#pragma once

#include <cstdint>
#include <limits>

namespace kiln::ops {

/// What was not set is refused: a size that was forgotten is none of 0 or 1.
inline constexpr std::int64_t kUnsetSize = std::numeric_limits<std::int64_t>::min();

}  // namespace kiln::ops
