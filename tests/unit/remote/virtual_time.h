// Time that passes when a test says so, and chance that a test chooses.

#pragma once

#include "remote/policy.h"

namespace kiln::remote::test {

using namespace std::chrono_literals;

/// Always the same: 0 is the shortest of a range, 1 its end.
inline Random always(double value) {
  return [value] { return value; };
}

inline constexpr TimePoint kStart{std::chrono::hours(1)};

}  // namespace kiln::remote::test
