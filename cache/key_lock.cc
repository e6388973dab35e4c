#include "cache/key_lock.h"

#include <fmt/format.h>

#include <utility>

#include "util/bytes.h"
#include "util/units.h"

namespace kiln::cache {
namespace {

using Clock = std::chrono::steady_clock;

// 256 files with this many records each: a million places. Two keys that share a place
// do not wait for each other.
constexpr std::uint64_t kRecordsPerFile = 4096;
constexpr std::chrono::seconds kTellEvery{1};
constexpr int kPhases = 4;  // of a holder, each with a limit of its own

OwnedRange::Place place_of(const KeyLock::Context& context, const Digest& key) {
  const auto byte = [&](std::size_t i) {
    return std::to_integer<std::uint64_t>(key.bytes()[i]);
  };
  return {&context.file_system, context.folder.path / to_hex(key.bytes().first<1>()),
          (byte(1) << 8U | byte(2)) % kRecordsPerFile};
}

OwnerRecord record_of(const KeyLock::LockRequest& request) {
  OwnerRecord record;
  record.key = request.key;
  record.build_limit = request.build_limit;
  return record;
}

/// Remembers the holders that were waited for, and decides when to stop waiting.
class Wait {
 public:
  Wait(const KeyLock::LockRequest& request, const LockTimes& times)
      : request_(request),
        watch_(times),
        longest_(request.longest_wait.value_or(
            kPhases * (request.build_limit + times.compile_grace))) {}

  /// Takes note of the record, as read while somebody holds the lock.
  void see(const std::optional<OwnerRecord>& owner) {
    if (!owner || !owner->has_key(request_.key))
      return;
    if (!first_)
      first_ = *owner;
    if (owner->phase != Phase::kReleased &&
        (!builder_ || !builder_->same_owner(*owner)))
      builder_ = *owner;
  }

  [[nodiscard]] bool has_seen_builder() const { return builder_.has_value(); }

  /// True once a build that was waited for has ended, and answers the caller.
  [[nodiscard]] bool is_answered(const OwnerRecord& now) const {
    if (!build_has_ended(now) || !builder_ || !request_.is_answer)
      return false;
    OwnerRecord builder = *builder_;
    builder.timed_out = now.timed_out && now.build_limit == builder.build_limit;
    return request_.is_answer(builder);
  }

  /// nullopt: keep waiting.
  std::optional<std::string> reason_to_stop(const std::optional<OwnerRecord>& owner) {
    const auto now = Clock::now();
    const pid_t pid = owner ? owner->pid : 0;
    if (!request_.wait)
      return fmt::format("process {} is building the object", pid);
    if (owner && build_has_ended(*owner))
      return fmt::format(
          "a build has ended without an object, and process {} has begun", pid);
    if (auto why = watch_.give_up(owner))
      return why;
    const auto waited = std::chrono::floor<std::chrono::milliseconds>(now - began_);
    if (waited > longest_)  // for holders that were killed one after another
      return fmt::format("no build has ended in {}", format_duration(waited));
    // Seen twice, because a new owner writes its record only after it has the lock.
    const bool other_key = owner && !owner->has_key(request_.key);
    if (other_key && saw_other_key_)
      return fmt::format("process {} holds the place for another key", pid);
    saw_other_key_ = other_key;
    if (owner && owner->phase != Phase::kReleased && request_.on_wait &&
        now >= tell_at_) {
      request_.on_wait(*owner);
      tell_at_ = now + kTellEvery;
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] bool build_has_ended(const OwnerRecord& now) const {
    return first_ && now.has_key(request_.key) &&
           now.builds_ended != first_->builds_ended;
  }

  const KeyLock::LockRequest& request_;
  OwnerWatch watch_;
  const std::chrono::milliseconds longest_;
  const Clock::time_point began_ = Clock::now();
  std::optional<OwnerRecord> first_;    // whose count tells that a build has ended
  std::optional<OwnerRecord> builder_;  // the last holder that was seen
  bool saw_other_key_ = false;
  Clock::time_point tell_at_{};
};

}  // namespace

KeyLock::Acquired KeyLock::acquire(const Context& context, const LockRequest& request) {
  const auto started = Clock::now();
  const auto ended = [&](Acquired how) {
    how.waited = Clock::now() - started;
    return how;
  };
  const auto bypassed = [&](std::string reason) {
    context.counters.add(Counter::kLockBypassed);
    return ended({.outcome = LockOutcome::kBypassed, .reason = std::move(reason)});
  };
  if (!context.folder.usable())
    return bypassed(context.folder.why);
  const OwnedRange::Place place = place_of(context, request.key);
  Wait wait(request, context.times);
  BackOff pause(context.times);
  for (bool waited = false;; waited = true) {
    if (request.stop.stop_requested())
      return ended({.outcome = LockOutcome::kCancelled});
    auto owned =
        OwnedRange::try_own(place, record_of(request), context.times.heartbeat);
    if (!owned) {
      context.counters.add_if_untrusted(owned.error());
      return bypassed(std::move(owned).error().message);
    }
    // Read before the look for the object: who publishes counts its build afterwards.
    const auto record = *owned ? (*owned)->record() : OwnedRange::owner(place);
    // Also when the lock is ours: its last holder may have just published.
    if (request.look_again && request.look_again())
      return ended({.outcome = LockOutcome::kAppeared});
    if (record && wait.is_answered(*record))
      return ended({.outcome = LockOutcome::kAnswered});
    if (*owned) {
      const bool is_second_try = wait.has_seen_builder() && (*owned)->is_after_killed();
      return ended({.outcome = LockOutcome::kHeld,
                    .lock = **std::move(owned),
                    .is_second_try = is_second_try});
    }
    if (!waited && request.wait)
      context.counters.add(Counter::kLockWaited);
    if (auto why = wait.reason_to_stop(record))
      return bypassed(*std::move(why));
    wait.see(record);
    stoppable_sleep(pause.next(), request.stop);
  }
}

}  // namespace kiln::cache
