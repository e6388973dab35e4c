// A sleep that a stop request ends early.

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace kiln::cache {

/// Returns after `duration`, or at once when `stop` is requested.
inline void stoppable_sleep(std::chrono::nanoseconds duration,
                            const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any wake;
  wake.wait_for(lock, stop, duration, [] { return false; });
}

}  // namespace kiln::cache
