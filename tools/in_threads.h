// The items of a run, several at a time.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "util/mutex.h"
#include "util/quiet_thread.h"

namespace kiln::tools {

/// Of what is stored: a file system writes many files that are synced at a time
/// together, and each as one alone.
inline constexpr std::size_t kStoringThreads = 64;

/// Of what is read, and checked by the processor.
inline constexpr std::size_t kReadingThreads = 8;

/// Calls `handle` with each number below `count`, in up to `threads` threads, of which
/// the caller's is one, in case the system can start no other. After a stop it begins
/// no further one.
inline void in_threads(std::size_t threads, std::size_t count,
                       const std::stop_token& stop,
                       const std::function<void(std::size_t)>& handle) {
  std::atomic<std::size_t> next{0};
  const auto take = [&] {
    while (!stop.stop_requested()) {
      const std::size_t i = next.fetch_add(1);
      if (i >= count)
        return;
      handle(i);
    }
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < std::min(threads, count); ++i) {
    auto thread = start_quiet_thread(take, Thread::kJoinable);
    if (!thread)
      break;  // which is logged
    others.push_back(*std::move(thread));
  }
  take();
  for (std::thread& thread : others) thread.join();
}

/// Of objects that are read at a time, beside one that is larger.
inline constexpr std::uint64_t kMostHeld = 32ULL << 20U;

/// Bounds the bytes that threads hold at a time. Copies have one bound together. Thread
/// safety: every method may run concurrently.
class HeldBytes {
 public:
  explicit HeldBytes(std::uint64_t most) : state_(std::make_shared<State>(most)) {}
  /// Waits until there is room for them, or nobody holds any. They are held as long as
  /// the result lives.
  [[nodiscard]] std::shared_ptr<const void> take(std::uint64_t bytes) const {
    const MutexLock lock(state_->mutex);
    while (state_->held != 0 && state_->held + bytes > state_->most)
      state_->less.wait(state_->mutex);
    state_->held += bytes;
    return {nullptr, [state = state_, bytes](const void*) {
              const MutexLock of_giver(state->mutex);
              state->held -= bytes;
              state->less.notify_all();
            }};
  }

 private:
  struct State {
    explicit State(std::uint64_t bytes) : most(bytes) {}
    const std::uint64_t most;
    Mutex mutex;
    ConditionVariable less;
    std::uint64_t held KILN_GUARDED_BY(mutex) = 0;
  };
  const std::shared_ptr<State> state_;
};

/// Counts results that could not be written, as on a full disk. Thread safety: none.
class LostResults {
 public:
  void count(bool is_lost) {
    if (!has_given_up())
      in_a_row_ = is_lost ? in_a_row_ + 1 : 0;
  }
  /// After so many in a row nothing more is tried.
  [[nodiscard]] bool has_given_up() const { return in_a_row_ >= 3; }

 private:
  int in_a_row_ = 0;
};

/// Puts the calls of one in_threads() in their order: each has its turn, with or
/// without something to do. Thread safety: every method may run concurrently.
class Turns {
 public:
  /// Calls `handle` after those of all lower numbers.
  template <typename Handle>
  void take(std::size_t number, const Handle& handle) {
    const MutexLock lock(mutex_);
    while (next_ != number) changed_.wait(mutex_);
    handle();
    ++next_;
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  std::size_t next_ KILN_GUARDED_BY(mutex_) = 0;
};

}  // namespace kiln::tools
