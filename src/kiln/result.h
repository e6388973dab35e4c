// Value-or-error return type: what every fallible function of Kiln returns.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "kiln/export.h"

namespace kiln {

/// What the caller can do about a failure. In JSON the kiln program writes these codes
/// as to_string() does.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  // fix the request; retrying cannot help
  kNotFound,         // no such key, file, template or library
  kCompileFailed,    // NVRTC rejected the source; `message` has NVRTC's log
  kWorkerCrashed,    // the compile process died; the next request gets a new one
  kTimeout,          // over the wall-clock limit: raise it, or simplify the source
  kResourceLimit,    // over a memory or size limit: raise it
  kCancelled,        // the caller asked for the work to stop
  kCorrupt,          // stored or received bytes fail a check
  kUntrusted,        // a file or folder that another user can write
  kIo,               // a system call failed; `message` names path and errno
  kUnavailable,      // missing, too old or switched off; `message` says what to do
  kDevice,           // the CUDA driver failed; `message` names the call
};

/// The JSON name of `code`: "invalid_argument", "not_found" and so on. Thread-safe.
[[nodiscard]] KILN_EXPORT std::string_view to_string(ErrorCode code);

struct Error {
  ErrorCode code;
  /// Names the object, the call, the cause and, if there is one, the remedy. Begins in
  /// lower case and has no trailing dot.
  std::string message;
  /// Of kWorkerCrashed: the compile process was ended by a signal that is no fault of
  /// the request, for example for want of memory, and so was a second one. A later try
  /// may succeed.
  bool from_outside = false;
};

/// A T or an Error, with the interface of std::expected of C++23. Thread safety: as for
/// T.
template <typename T>
using Result = tl::expected<T, Error>;

/// For callers' own functions: `return fail(ErrorCode::kIo, "open /x: no such file or
/// directory");`
[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace kiln
