// Runs a kernel's text on the CPU: one fiber a CUDA thread, block after block. Barriers
// and warp collectives are rendezvous; who never comes is reported. Three orders of the
// threads and poisoned shared memory show a missing barrier as a different result.
// It knows nothing of memory coalescing, bank conflicts or weak memory.

#pragma once

#include <functional>

#include "kiln/geometry.h"
#include "kiln/result.h"

namespace kiln_cpu {

/// Which runnable thread goes first.
enum class Order { kAscending, kDescending, kShuffled };

/// Calls `kernel` once for each thread of `geometry` (x alone). `kernel` is a call of
/// the entry point with its arguments bound. Errors: kInvalidArgument for a grid or
/// block in y or z; kCancelled with the block's number where its threads wait for each
/// other for ever. Thread safety: one launch at a time a thread.
[[nodiscard]] kiln::Result<void> launch(const kiln::Geometry& geometry, Order order,
                                        const std::function<void()>& kernel);

}  // namespace kiln_cpu
