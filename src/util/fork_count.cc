#include "util/fork_count.h"

#include <pthread.h>

#include <atomic>

namespace kiln {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the process
std::atomic<std::uint64_t> forks = 0;

// From the moment Kiln is loaded, so that no fork falls in the beginning. It fails for
// want of memory alone; then a child is told by its pid, and by what the driver says.
[[maybe_unused]] const bool kCounts =
    ::pthread_atfork(nullptr, nullptr, [] { ++forks; }) == 0;

}  // namespace

std::uint64_t fork_count() {
  return forks.load(std::memory_order_relaxed);
}

}  // namespace kiln
