// A call that may never return, such as one on a dead mount: it runs on a thread that
// is left behind when its time is over.

#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "util/mutex.h"
#include "util/quiet_thread.h"

namespace kiln {

/// What `body` returns, or nullopt if it takes longer than `limit`, or if there is no
/// thread for it. Then it goes on alone, to the end of the process if need be: it must
/// own all that it touches. `silent(true)` is called where it is left behind, and
/// `silent(false)` if it returns after all. What it throws, this throws.
template <typename T>
[[nodiscard]] std::optional<T> call_or_leave(std::function<T()> body,
                                             std::chrono::milliseconds limit,
                                             const std::function<void(bool)>& silent) {
  struct Shared {
    Mutex mutex;
    ConditionVariable ended;
    bool is_over KILN_GUARDED_BY(mutex) = false;
    std::optional<T> result KILN_GUARDED_BY(mutex);
    std::exception_ptr thrown KILN_GUARDED_BY(mutex);
    bool is_left KILN_GUARDED_BY(mutex) = false;
  };
  const auto shared = std::make_shared<Shared>();
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const auto run = [shared, body = std::move(body), silent] {
    std::optional<T> result;
    std::exception_ptr thrown;
    try {
      result = body();
    } catch (...) {
      thrown = std::current_exception();
    }
    const MutexLock lock(shared->mutex);
    shared->result = std::move(result);
    shared->thrown = thrown;
    shared->is_over = true;
    if (shared->is_left)
      silent(false);
    shared->ended.notify_all();
  };
  if (!start_quiet_thread(run, Thread::kDetached))
    return std::nullopt;
  const MutexLock lock(shared->mutex);
  while (!shared->is_over) {
    if (!shared->ended.wait_until(shared->mutex, deadline) && !shared->is_over) {
      shared->is_left = true;
      silent(true);
      return std::nullopt;
    }
  }
  if (shared->thrown)
    std::rethrow_exception(shared->thrown);
  return std::move(shared->result);
}

}  // namespace kiln
