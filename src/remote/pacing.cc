#include "remote/pacing.h"

#include <algorithm>

namespace kiln::remote {

Duration start_delay(bool has_rank, Duration most, const Random& random) {
  return has_rank ? scaled(most, random()) : Duration{0};
}

Duration retry_delay(int retry, const Random& random) {
  constexpr std::chrono::milliseconds kFirst{500};
  constexpr std::chrono::seconds kLongest{10};
  constexpr int kMostDoublings = 5;
  const int doublings = std::clamp(retry - 1, 0, kMostDoublings);
  return scaled(std::min<Duration>(kFirst * (1 << doublings), kLongest), random());
}

std::optional<TimePoint> Poll::next(TimePoint now) {
  if (is_done_ || now >= deadline_)
    return std::nullopt;
  const Duration pause = scaled(pause_, 0.5 + random_() / 2);
  pause_ = std::min<Duration>(pause_ * 2, kLongest);
  is_done_ = pause >= deadline_ - now;
  return is_done_ ? deadline_ : now + pause;
}

}  // namespace kiln::remote
