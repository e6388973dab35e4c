// Runs a kernel's text on the CPU: one fiber a CUDA thread, block after block. Barriers
// and warp collectives are rendezvous; who never comes is reported, and so is an access
// outside of guarded_memory.h and a thread that never ends.
// Three orders of the threads and three poisons of shared memory show a missing
// barrier, and what was never written, as a different result: equal bits are to be
// demanded. Copies to shared memory that go on beside happen in the wait for them, and
// until then there is poison. It knows nothing of memory coalescing, bank conflicts or
// weak memory, and threads change places only at barriers and collectives: a race
// between two of them stays unseen.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>

#include "kiln/geometry.h"
#include "kiln/result.h"

namespace kiln_cpu {

/// Which runnable thread goes first. In the first two each warp goes as far as it can
/// before the next one, the blocks too: one extreme and the other of what a GPU may do.
/// Shuffled: warps advance at random, threads of a warp and blocks in a random order
/// that is the same every time.
enum class Order : std::uint8_t { kAscending, kDescending, kShuffled };

struct LaunchOptions {
  Order order = Order::kAscending;
  /// The blocks of the grid that run.
  long long first_block = 0;
  long long most_blocks = std::numeric_limits<long long>::max();
  /// Processor time between two barriers or collectives of a thread, and the half of it
  /// again, after which it is said to run without end.
  std::chrono::milliseconds longest_step{10000};
};

/// Calls `kernel` once for each thread of `geometry` (x alone). `kernel` is a call of
/// the entry point with its arguments bound; it owns nothing. Errors: kInvalidArgument
/// for a grid or block in y or z, and for what the kernel does wrong, with block,
/// thread and place. Thread safety: one launch at a time, all threads together.
[[nodiscard]] kiln::Result<void> launch(const kiln::Geometry& geometry,
                                        const LaunchOptions& options,
                                        const std::function<void()>& kernel);

}  // namespace kiln_cpu
