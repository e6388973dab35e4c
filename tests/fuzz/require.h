#pragma once

#include <cstdlib>

namespace kiln::fuzz {

/// What a target finds: the input at hand breaks this.
inline void require(bool holds) {
  if (!holds)
    std::abort();
}

}  // namespace kiln::fuzz
