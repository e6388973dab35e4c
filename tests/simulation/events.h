// Virtual time: what is to happen, in its order. One thread; equal seeds give equal
// runs.

#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "remote/policy.h"

namespace kiln::simulation {

using remote::Duration;
using remote::TimePoint;

inline Duration seconds(double value) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}
inline double in_seconds(Duration value) {
  return std::chrono::duration<double>(value).count();
}

/// Thread safety: none.
class Events {
 public:
  explicit Events(std::uint64_t seed) : generator_(seed) {}

  [[nodiscard]] TimePoint now() const { return now_; }
  void at(TimePoint when, std::function<void()> what) {
    queue_.push({std::max(when, now_), next_++, std::move(what)});
  }
  void after(Duration pause, std::function<void()> what) {
    at(now_ + pause, std::move(what));
  }
  /// Until nothing is left to happen.
  void run() {
    while (!queue_.empty()) {
      // The queue gives out const references only; the element leaves it at once.
      auto next = std::move(const_cast<Event&>(queue_.top()));
      queue_.pop();
      now_ = next.when;
      next.what();
    }
  }
  [[nodiscard]] double chance() {
    return std::uniform_real_distribution<double>()(generator_);
  }

 private:
  struct Event {
    TimePoint when;
    std::uint64_t number;  // equal times: in the order of arrival
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::pair(when, number) > std::pair(other.when, other.number);
    }
  };

  TimePoint now_{};
  std::uint64_t next_ = 0;
  std::priority_queue<Event> queue_;
  std::mt19937_64 generator_;
};

}  // namespace kiln::simulation
