// Checks a launch and submits it. Names errors that CUDA reports as a bare "invalid
// value" or not at all.

#pragma once

#include <cstddef>
#include <span>

#include "device/function.h"
#include "kiln/geometry.h"
#include "kiln/result.h"

struct CUstream_st;

namespace kiln::device {

/// Enqueues one run of `function` on `stream` and does not wait for it. `arguments`
/// point to the values, which are copied; `sizes` are their sizes in bytes. Allocates
/// and locks nothing unless it fails. Works while the stream is captured. Does not
/// change the thread's current context.
///
/// A grid with a 0 in it has no blocks: returns success and launches nothing.
///
/// Null, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are streams of the thread's current
/// context, which must be the kernel's; if none is current, of the kernel's context.
/// Any other stream must belong to the kernel's context.
///
/// Errors name the kernel, the device, the value and the limit. Before the launch:
/// kInvalidArgument (arguments, geometry, stream), kUnavailable (the driver is too old
/// for clusters and cooperative launches). kDevice: an error of the driver, possibly of
/// an earlier kernel that crashed. Thread-safe.
[[nodiscard]] Result<void> launch(const Function& function, const Geometry& geometry,
                                  CUstream_st* stream, std::span<void* const> arguments,
                                  std::span<const std::size_t> sizes);

/// Enqueues what launch() has enqueued before: the same function, the same geometry,
/// and arguments of the same sizes. The context of `function` is current, and `stream`
/// belongs to it. Errors: kDevice.
[[nodiscard]] Result<void> launch_again(const Function& function,
                                        const Geometry& geometry, CUstream_st* stream,
                                        std::span<void* const> arguments);

}  // namespace kiln::device
