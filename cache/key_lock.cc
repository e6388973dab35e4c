#include "cache/key_lock.h"

#include <fmt/format.h>

#include <utility>

#include "cache/stoppable_sleep.h"
#include "util/bytes.h"
#include "util/units.h"

namespace kiln::cache {
namespace {

using Clock = std::chrono::steady_clock;

// 256 files with this many records each: a million places. Two keys that share a place
// do not wait for each other.
constexpr std::uint64_t kRecordsPerFile = 4096;
constexpr std::chrono::seconds kTellEvery{1};

OwnedRange::Place place_of(const KeyLock::Context& context, const Digest& key) {
  const auto byte = [&](std::size_t i) {
    return std::to_integer<std::uint64_t>(key.bytes()[i]);
  };
  return {&context.file_system, context.folder.path / to_hex(key.bytes().first<1>()),
          (byte(1) << 8U | byte(2)) % kRecordsPerFile};
}

OwnerRecord record_of(const KeyLock::Request& request) {
  OwnerRecord record;
  record.key = request.key;
  record.build_limit = request.build_limit;
  return record;
}

/// Decides when to stop waiting for a holder.
class WaitLimit {
 public:
  WaitLimit(const KeyLock::Request& request, const LockTimes& times)
      : request_(request), watch_(times) {}

  std::optional<std::string> reason_to_stop(const std::optional<OwnerRecord>& owner) {
    const auto now = Clock::now();
    if (request_.deadline && now >= *request_.deadline) {
      return fmt::format("the deadline passed while waiting for process {}",
                         owner ? owner->pid : 0);
    }
    if (auto why = watch_.give_up(owner))
      return why;
    // Seen twice, because a new owner writes its record only after it has the lock.
    const bool other_key = owner && !owner->has_key(request_.key);
    if (other_key && saw_other_key_)
      return fmt::format("process {} holds the place for another key", owner->pid);
    saw_other_key_ = other_key;
    if (owner && request_.on_wait && now >= tell_at_) {
      request_.on_wait(*owner);
      tell_at_ = now + kTellEvery;
    }
    return std::nullopt;
  }

 private:
  const KeyLock::Request& request_;
  OwnerWatch watch_;
  bool saw_other_key_ = false;
  Clock::time_point tell_at_{};
};

}  // namespace

KeyLock::Acquired KeyLock::acquire(const Context& context, const Request& request) {
  const auto started = Clock::now();
  const auto ended = [&](LockOutcome outcome, KeyLock lock, std::string reason) {
    if (outcome == LockOutcome::kBypassed)
      context.counters.add(Counter::kLockBypassed);
    return Acquired{outcome, std::move(lock), std::move(reason),
                    Clock::now() - started};
  };
  if (!context.folder.usable())
    return ended(LockOutcome::kBypassed, {}, context.folder.why);
  const OwnedRange::Place place = place_of(context, request.key);
  WaitLimit wait_limit(request, context.times);
  BackOff pause(context.times);
  for (bool waited = false;; waited = true) {
    if (request.stop.stop_requested())
      return ended(LockOutcome::kCancelled, {}, {});
    auto owned =
        OwnedRange::try_own(place, record_of(request), context.times.heartbeat);
    if (!owned) {
      context.counters.add_if_untrusted(owned.error());
      return ended(LockOutcome::kBypassed, {}, std::move(owned).error().message);
    }
    // Also when the lock is ours: its last holder may have just published.
    if (request.look_again && request.look_again())
      return ended(LockOutcome::kAppeared, {}, {});
    if (*owned)
      return ended(LockOutcome::kHeld, KeyLock(**std::move(owned)), {});
    if (!waited)
      context.counters.add(Counter::kLockWaited);
    if (auto why = wait_limit.reason_to_stop(OwnedRange::owner(place)))
      return ended(LockOutcome::kBypassed, {}, *std::move(why));
    stoppable_sleep(pause.next(), request.stop);
  }
}

}  // namespace kiln::cache
