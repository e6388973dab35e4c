#include "util/fork_count.h"

#include <pthread.h>

#include <atomic>
#include <tuple>

namespace kiln {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the process
std::atomic<std::uint64_t> forks = 0;

bool begin_to_count() {
  // It fails for want of memory alone; then a child is told by what the driver says.
  std::ignore = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
  return true;
}

}  // namespace

std::uint64_t fork_count() {
  static const bool counts = begin_to_count();
  std::ignore = counts;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace kiln
