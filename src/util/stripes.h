// Which of several copies of one thing a thread uses, so that threads do not wait for
// each other's cache lines.

#pragma once

#include <atomic>
#include <cstddef>

namespace kiln {

inline constexpr std::size_t kStripes = 16;
inline constexpr std::size_t kCacheLineBytes = 64;

/// Of the calling thread, less than kStripes: threads take them in turn.
inline std::size_t stripe_of_thread() {
  static std::atomic<std::size_t> threads = 0;
  thread_local const std::size_t mine = threads++ % kStripes;
  return mine;
}

}  // namespace kiln
