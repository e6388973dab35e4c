#include "remote/breaker.h"

#include <algorithm>
#include <utility>

namespace kiln::remote {

std::optional<Breaker::Leave> Breaker::admit(TimePoint now) {
  if (state_ == State::kClosed)
    return Leave(period_);
  if (now < until_)
    return std::nullopt;
  // The rest is over, or the probe was lost.
  change(State::kProbing);
  until_ = now + kProbeLimit;
  return Leave(period_);
}

Breaker::Advice Breaker::report(const Leave& leave, TimePoint now, Verdict verdict,
                                std::optional<std::chrono::seconds> retry_after) {
  if (leave.period_ != period_)
    return Advice::kNone;
  switch (verdict) {
    case Verdict::kAbandoned:
      if (state_ == State::kProbing)
        until_ = now;  // the next request is the probe
      return Advice::kNone;
    case Verdict::kGood:
      if (state_ != State::kClosed)
        change(State::kClosed);
      failures_ = 0;
      bad_bodies_ = 0;
      openings_ = 0;
      has_read_credentials_ = false;
      has_warned_ = false;
      return Advice::kNone;
    case Verdict::kDenied:
      if (!std::exchange(has_read_credentials_, true)) {
        ++period_;  // what runs has the old ones
        if (state_ == State::kProbing)
          until_ = now;  // the next request is the probe
        return Advice::kReadCredentials;
      }
      return open(now, kLongestOpening);
    case Verdict::kBadBody:
      if (++bad_bodies_ < kBadBodiesToOpen) {  // it answers
        if (state_ != State::kClosed)
          change(State::kClosed);
        failures_ = 0;
        return Advice::kNone;
      }
      failures_ = kFailuresToOpen;
      break;
    case Verdict::kFailed:
      break;
  }
  Advice advice = Advice::kNone;
  if (state_ == State::kProbing || ++failures_ >= kFailuresToOpen)
    advice = open_for_failures(now);
  else if (retry_after)
    advice = open(now, Duration{0});
  if (retry_after) {
    // Never earlier than it asked for, and not all at the same moment.
    const Duration rest = std::clamp<Duration>(*retry_after, Duration{0}, kLongestRest);
    until_ = std::max(until_, now + rest + scaled(rest, random_() / 2));
  }
  return advice;
}

void Breaker::change(State state) {
  state_ = state;
  ++period_;
  failures_ = 0;
}

Breaker::Advice Breaker::open(TimePoint now, Duration rest) {
  change(State::kOpen);
  has_read_credentials_ = false;  // after a rest they may have been renewed
  until_ = now + scaled(rest, 0.5 + random_());
  return std::exchange(has_warned_, true) ? Advice::kNone : Advice::kWarn;
}

Breaker::Advice Breaker::open_for_failures(TimePoint now) {
  constexpr int kMostDoublings = 5;  // 30 s to 16 min
  const int doublings = std::min(openings_++, kMostDoublings);
  return open(now,
              std::min<Duration>(kFirstOpening * (1 << doublings), kLongestOpening));
}

}  // namespace kiln::remote
