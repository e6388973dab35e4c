// Background tasks, on a few threads that are started on demand.

#pragma once

#include <deque>
#include <functional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "kiln/result.h"
#include "util/lazy_count.h"
#include "util/mutex.h"

namespace kiln {

/// Thread safety: start() may run concurrently. The destructor drops tasks that have
/// not begun, asks running ones to stop, and waits for them.
class Prefetcher {
 public:
  using Task = std::function<void(const std::stop_token& stop)>;

  /// At most `threads` tasks run at a time.
  explicit Prefetcher(LazyCount threads) : most_(std::move(threads)) {}
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher();

  /// Queues `task`, which must not throw. Errors: kUnavailable (the system has no
  /// thread left).
  [[nodiscard]] Result<void> start(Task task);

 private:
  void work();

  const LazyCount most_;
  std::stop_source stop_;

  Mutex mutex_;
  ConditionVariable arrived_;
  std::deque<Task> tasks_ KILN_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ KILN_GUARDED_BY(mutex_);
  unsigned idle_ KILN_GUARDED_BY(mutex_) = 0;
  bool ends_ KILN_GUARDED_BY(mutex_) = false;
};

}  // namespace kiln
