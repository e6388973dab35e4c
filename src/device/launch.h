// A launch, checked before the driver sees it: what CUDA would answer with a bare
// "invalid value", or not at all, is named here.

#pragma once

#include <cstddef>
#include <span>

#include "device/function.h"
#include "kiln/geometry.h"
#include "kiln/result.h"

struct CUstream_st;

namespace kiln::device {

/// Puts one run of `function` on `stream`; does not wait for it. `arguments` point to
/// the values, which are copied; `sizes` are theirs in bytes, one each. Allocates and
/// locks nothing unless it fails. Works while the stream is captured. What is current
/// to the thread stays so.
///
/// A grid with a 0 in it has no blocks: success, and nothing is launched.
///
/// Null, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are streams of the thread's current
/// context, which must be the kernel's; where there is none the kernel's is taken. Any
/// other stream must belong to the kernel's context.
///
/// Errors name kernel, device, value and limit, and come before the launch:
/// kInvalidArgument (arguments, geometry, stream), kUnavailable (a driver too old for
/// clusters and cooperative launches). kDevice: the driver's, also that of an earlier
/// kernel that crashed. Thread-safe.
[[nodiscard]] Result<void> launch(const Function& function, const Geometry& geometry,
                                  CUstream_st* stream, std::span<void* const> arguments,
                                  std::span<const std::size_t> sizes);

}  // namespace kiln::device
