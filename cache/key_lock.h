// One build per key at a time on a machine. The lock only saves work: a process that
// goes on without it, or loses it, still builds and publishes correctly.

#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "cache/counters.h"
#include "cache/lock_folder.h"
#include "cache/owned_range.h"
#include "codec/digest.h"

namespace kiln::cache {

enum class LockOutcome : std::uint8_t {
  kHeld,       // build, publish, OwnedRange::end_build()
  kAppeared,   // look_again returned true; nothing is held
  kAnswered,   // is_answer returned true; nothing is held
  kBypassed,   // build without the lock; `reason` says why
  kCancelled,  // `stop` was requested
};

/// Thread safety: any number of threads may wait at once, also for one key in one
/// process.
struct KeyLock {
  struct Context {
    const LockFolder& folder;
    FileSystem& file_system;
    Counters& counters;
    LockTimes times;
  };

  struct LockRequest {
    Digest key{};
    /// Called at every attempt, also when it got the lock: true ends the wait, because
    /// the object is there now.
    std::function<bool()> look_again{};
    /// Called when a build that this call waited for has ended and look_again is false,
    /// with what the record said of the builder, and whether it timed out: true ends
    /// the wait, because that build's end is an answer for this caller too. May be
    /// empty.
    std::function<bool(const OwnerRecord&)> is_answer{};
    /// False: a lock that somebody else holds is not waited for.
    bool wait = true;
    std::chrono::milliseconds build_limit{300'000};  // of our build; waiters read it
    /// Of the whole wait; nullopt: the four phases of one holder.
    std::optional<std::chrono::milliseconds> longest_wait{};
    std::stop_token stop{};
    /// Called about once a second with the holder that we wait for; may be empty.
    std::function<void(const OwnerRecord&)> on_wait{};
  };

  struct Acquired;

  /// Waits for the lock, for at most one build of another holder. Goes on without it
  /// (kBypassed) if locks do not work, the record is held for another key, a build that
  /// was waited for has ended with neither object nor answer and the next holder is
  /// building, or the holder is dead or stuck:
  /// - no heartbeat for LockTimes::no_heartbeat;
  /// - no record at all for LockTimes::no_record;
  /// - in one phase (queued, compiling, ...) for longer than its own build limit +
  ///   LockTimes::compile_grace.
  /// A holder that was killed, or whose build was, from outside, has ended no build:
  /// the next one is waited for, but all together no longer than the four phases of one
  /// holder may take.
  /// Never fails.
  [[nodiscard]] static Acquired acquire(const Context& context,
                                        const LockRequest& request);
};

struct KeyLock::Acquired {
  LockOutcome outcome = LockOutcome::kBypassed;
  OwnedRange lock{};     // held if and only if kHeld
  std::string reason{};  // of kBypassed
  std::chrono::nanoseconds waited{};
  /// Of kHeld: the build that this call waited for was killed from outside. What this
  /// one comes to is everybody's answer.
  bool is_second_try = false;
};

}  // namespace kiln::cache
