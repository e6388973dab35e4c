// Where the library ends and a program begins: what is thrown inside becomes an Error.

#pragma once

#include <exception>
#include <new>
#include <string>
#include <type_traits>

#include "kiln/result.h"

namespace kiln {

/// The Result of `call`, which may throw: memory that runs out, a thread that cannot be
/// started. Such a failure is kResourceLimit, any other a kUnavailable with its words.
template <typename Call>
[[nodiscard]] std::invoke_result_t<Call> at_border(const Call& call) noexcept {
  try {
    try {
      return call();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      return fail(ErrorCode::kUnavailable, error.what());
    } catch (...) {
      return fail(ErrorCode::kUnavailable, "an unexpected failure");
    }
  } catch (...) {  // also where there was no memory for the words above
    return fail(ErrorCode::kResourceLimit,
                "out of memory");  // so short that it needs none
  }
}

}  // namespace kiln
