// Integer division that rounds up.

#pragma once

#include <cstdint>

namespace kiln::ops {

/// a / b, rounded up, for a >= 0 and b > 0.
[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace kiln::ops
