// One computation per key at a time in this process: the first caller computes,
// concurrent callers get the same result.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <unordered_map>
#include <utility>

#include "kiln/result.h"
#include "util/mutex.h"

namespace kiln {

/// Thread safety: run() may be called from any thread; no lock is held while a
/// computation runs. `Value` is copied to every follower.
template <typename Key, typename Value>
class SingleFlight {
 public:
  struct Landed {
    Result<Value> result;
    bool computed = false;  // this call computed it
  };

  /// The result of `compute`, or of another caller's that was in progress for `key`. A
  /// follower returns kCancelled when its own `stop` is requested. If the leader was
  /// cancelled, or its `compute` threw (its caller gets the exception), a follower
  /// computes instead.
  [[nodiscard]] Landed run(const Key& key, const std::stop_token& stop,
                           const std::function<Result<Value>()>& compute) {
    while (true) {
      const auto [flight, leads] = join(key);
      if (leads)
        return {lead(key, *flight, compute), true};
      if (std::optional<Result<Value>> result = wait(*flight, stop))
        return {*std::move(result), false};
    }
  }

 private:
  struct Flight {
    Mutex mutex;
    ConditionVariable done;
    std::optional<Result<Value>> result KILN_GUARDED_BY(mutex);
  };

  std::pair<std::shared_ptr<Flight>, bool> join(const Key& key) {
    const MutexLock lock(mutex_);
    auto& flight = flights_[key];
    const bool leads = flight == nullptr;
    if (leads)
      flight = std::make_shared<Flight>();
    return {flight, leads};
  }

  Result<Value> lead(const Key& key, Flight& flight,
                     const std::function<Result<Value>()>& compute) {
    try {
      Result<Value> result = compute();
      finish(key, flight, Result<Value>(result));
      return result;
    } catch (...) {
      // Wake the followers, so that none waits for ever: they try themselves.
      finish(key, flight, fail(ErrorCode::kCancelled, {}));
      throw;
    }
  }

  void finish(const Key& key, Flight& flight, Result<Value> result) {
    {
      const MutexLock lock(mutex_);
      flights_.erase(key);
    }
    const MutexLock lock(flight.mutex);
    flight.result = std::move(result);
    flight.done.notify_all();
  }

  /// nullopt: the leader was cancelled; the caller must try again.
  std::optional<Result<Value>> wait(Flight& flight, const std::stop_token& stop) {
    // The condition variable cannot wait for a stop_token; a follower polls it this
    // often.
    constexpr std::chrono::milliseconds kPollInterval{20};
    const MutexLock lock(flight.mutex);
    while (!flight.result) {
      if (stop.stop_requested()) {
        return Result<Value>(
            fail(ErrorCode::kCancelled, "stopped while waiting for another thread"));
      }
      flight.done.wait_until(flight.mutex,
                             std::chrono::steady_clock::now() + kPollInterval);
    }
    if (!*flight.result && flight.result->error().code == ErrorCode::kCancelled &&
        !stop.stop_requested())
      return std::nullopt;
    return *flight.result;
  }

  Mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<Flight>> flights_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln
