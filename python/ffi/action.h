// What a function of libkiln_ffi.so that has an operation's name does: its first
// parameter.

#pragma once

#include <cstdint>

namespace kiln::python {

/// kLaunch: run it in the current stream; a launch that needs scratch memory and is
/// given none returns the bytes, and launches nothing. In a stream capture what was not
/// prepared is refused. kPrepare: fetch and load what a launch needs.
enum class Action : std::int64_t { kLaunch, kPrepare };

/// Added to an action by XLA's custom calls. No signal ends such a call, since XLA
/// cannot pass an exception of Python on. XLA prepares before each run of a program, so
/// kPrepare then does nothing for what was prepared.
inline constexpr std::int64_t kFromXla = 8;

/// Added to kLaunch: if tensors that must be contiguous are not, nothing is launched,
/// and the call returns -(the sum of 2^i of the tensors' places i among its values).
/// Without it such a tensor is refused.
inline constexpr std::int64_t kTellNotContiguous = 16;

}  // namespace kiln::python
