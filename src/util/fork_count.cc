#include "util/fork_count.h"

#include <pthread.h>

#include <atomic>

namespace kiln {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the process
std::atomic<std::uint64_t> forks = 0;

// Registered when Kiln is loaded, so that no fork is missed. It fails only if there is
// no memory; then a child is detected by its pid, and by the driver's errors.
[[maybe_unused]] const bool kCounts =
    ::pthread_atfork(nullptr, nullptr, [] { ++forks; }) == 0;

}  // namespace

std::uint64_t fork_count() {
  return forks.load(std::memory_order_relaxed);
}

}  // namespace kiln
