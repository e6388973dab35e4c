// How a fleet that starts at one moment spreads its requests.

#pragma once

#include <optional>
#include <utility>

#include "remote/policy.h"

namespace kiln::remote {

/// How long the first request of a process waits: up to `most`, where the process knows
/// that it is one of many (it has a rank); else not at all. The time counts as part of
/// the wait for the remote, so it makes no get longer.
[[nodiscard]] Duration start_delay(bool has_rank, Duration most, const Random& random);

/// The pause before the `retry`th repetition (1, 2, 3) of a transfer that failed: full
/// jitter, up to 0.5 s, 1 s, 2 s, never over 10 s. Only push, pull and warm repeat.
inline constexpr int kMostRetries = 3;
[[nodiscard]] Duration retry_delay(int retry, const Random& random);

/// Asks again and again for what others are building: after 50 ms, then half as rarely
/// each time, down to every 2 s, each time a little earlier by chance; the last time at
/// the deadline.
/// Thread safety: none.
class Poll {
 public:
  static constexpr std::chrono::milliseconds kFirst{50};
  static constexpr std::chrono::milliseconds kLongest{2000};

  Poll(TimePoint deadline, Random random)
      : deadline_(deadline), random_(std::move(random)) {}

  /// When to ask next; nullopt: the last time was the last.
  [[nodiscard]] std::optional<TimePoint> next(TimePoint now);

 private:
  const TimePoint deadline_;
  Random random_;
  Duration pause_ = kFirst;
  bool is_done_ = false;
};

}  // namespace kiln::remote
