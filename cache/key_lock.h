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
  kHeld,       // build, publish, release
  kAppeared,   // look_again returned true; nothing is held
  kBypassed,   // build without the lock; `reason` says why
  kCancelled,  // `stop` was requested
};

/// Thread safety: one thread at a time. Any number of KeyLocks may exist at once, also
/// for one key in one process.
class KeyLock {
 public:
  struct Context {
    const LockFolder& folder;
    FileSystem& file_system;
    Counters& counters;
    LockTimes times;
  };

  struct Request {
    Digest key{};
    /// Called at every attempt, also when it got the lock: true ends the wait, because
    /// the object is there now.
    std::function<bool()> look_again{};
    std::chrono::milliseconds build_limit{300'000};  // of our build; waiters read it
    std::stop_token stop{};
    std::optional<std::chrono::steady_clock::time_point> deadline{};
    /// Called about once a second with the holder that we wait for; may be empty.
    std::function<void(const OwnerRecord&)> on_wait{};
  };

  struct Acquired;

  KeyLock() = default;

  /// Waits for the lock. Goes on without it (kBypassed) if locks do not work, the
  /// record is held for another key, `deadline` passed, or the holder is dead or stuck:
  /// - no heartbeat for LockTimes::no_heartbeat;
  /// - compiling for longer than its own build limit + LockTimes::compile_grace
  ///   (queueing for a slot does not count).
  /// Never fails.
  [[nodiscard]] static Acquired acquire(const Context& context, const Request& request);

  [[nodiscard]] bool held() const { return range_.held(); }
  void set_phase(Phase phase) { range_.set_phase(phase); }
  void release() noexcept { range_.release(); }

 private:
  explicit KeyLock(OwnedRange range) : range_(std::move(range)) {}

  OwnedRange range_;
};

struct KeyLock::Acquired {
  LockOutcome outcome = LockOutcome::kBypassed;
  KeyLock lock;        // held if and only if kHeld
  std::string reason;  // of kBypassed
  std::chrono::nanoseconds waited{};
};

}  // namespace kiln::cache
