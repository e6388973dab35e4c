// KILN_TRY: the value of a Result, or an early return of its error.

#pragma once

#include <utility>

#include "kiln/result.h"

/// `auto bytes = KILN_TRY(read_file(path));` returns the error to this function's
/// caller when there is one. Usable only in a function that returns a Result.
/// A GNU statement expression: g++ and clang both have it.
#define KILN_TRY(expression)                                       \
  ({                                                               \
    auto kiln_try_result = (expression);                           \
    if (!kiln_try_result)                                          \
      return ::tl::unexpected(std::move(kiln_try_result).error()); \
    ::kiln::detail::take_value(std::move(kiln_try_result));        \
  })

namespace kiln::detail {

template <typename T>
T take_value(tl::expected<T, Error>&& result) {
  if constexpr (!std::is_void_v<T>)
    return *std::move(result);
}

}  // namespace kiln::detail
