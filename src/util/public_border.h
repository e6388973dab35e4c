// The border between the library and a program: turns exceptions into Errors, and keeps
// pthread_cancel() out.

#pragma once

#include <exception>
#include <new>
#include <type_traits>

#include "kiln/result.h"
#include "util/no_cancellation.h"

namespace kiln {

/// The Result of `call`. If it throws: kResourceLimit for std::bad_alloc; kUnavailable,
/// with the exception's message, for all else, such as a thread that cannot start.
/// For a call that is over in nanoseconds unless it cares for cancellation itself.
template <typename Call>
[[nodiscard]] std::invoke_result_t<Call> at_quick_border(const Call& call) noexcept {
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

/// The same, and a thread that is cancelled meanwhile finishes the call.
template <typename Call>
[[nodiscard]] std::invoke_result_t<Call> at_border(const Call& call) noexcept {
  const NoCancellation uncancelled;
  return at_quick_border(call);
}

}  // namespace kiln
