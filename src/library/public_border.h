// The border between the library and a program: turns exceptions into Errors.

#pragma once

#include <exception>
#include <new>
#include <string>
#include <type_traits>

#include "kiln/result.h"

namespace kiln {

/// The Result of `call`. If it throws: kResourceLimit for std::bad_alloc; kUnavailable,
/// with the exception's message, for all else, such as a thread that cannot start.
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
  } catch (...) {  // also if the messages above do not fit in memory
    return fail(ErrorCode::kResourceLimit,
                "out of memory");  // short enough to need no allocation
  }
}

}  // namespace kiln
