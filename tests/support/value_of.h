// The value of a result that a test cannot go on without.

#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "kiln/result.h"

namespace kiln::test {

/// Throws what the error says, and where: so the test ends, and fails. Not for a child
/// process, which GoogleTest does not watch.
template <typename Value>
Value value_of(Result<Value> result, const char* file = __builtin_FILE(),
               int line = __builtin_LINE()) {
  if (!result)
    throw std::runtime_error(
        fmt::format("{}:{}: {}", file, line, result.error().message));
  return *std::move(result);
}

}  // namespace kiln::test
