// A 64-byte record in a lock file, owned through a FileLock on exactly those bytes. The
// lock says that somebody holds it; the record, a hint, says who. FORMAT.md, "Locks".

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "cache/file_lock.h"
#include "codec/digest.h"
#include "kiln/result.h"

namespace kiln::cache {

/// CLOCK_BOOTTIME: also runs during suspend, and cannot be set.
using BootTime = std::chrono::nanoseconds;
[[nodiscard]] BootTime boot_time_now();

enum class Phase : std::uint8_t {
  kStarting = 1,
  kQueued,
  kCompiling,
  kPublishing,
  kReleased,  // nobody holds it: what the last holder left
};

/// "starting", "queued for a slot", "compiling", "publishing", "released".
[[nodiscard]] std::string_view to_string(Phase phase);

enum class BuildEnd : std::uint8_t {
  kTimedOut,
  kKilled,  // from outside: it is none, and whoever waits for it tries
  kOther,
};

/// What a holder writes about itself.
struct OwnerRecord {
  pid_t pid = 0;
  Phase phase = Phase::kStarting;
  Digest key;          // only its first 16 bytes are kept
  BootTime started{};  // of the ownership
  BootTime phase_started{};
  BootTime heartbeat{};
  std::chrono::milliseconds build_limit{};  // after which the holder kills its build
  /// Builds of this key that ended since the record was about another key: each holder
  /// goes on counting where the last one stopped. A killed holder's build is none.
  std::uint32_t builds_ended = 0;
  /// The last of them was killed at `build_limit`. A holder with another limit clears
  /// it.
  bool timed_out = false;
  /// The last holder's build was killed from outside.
  bool killed = false;

  [[nodiscard]] Bytes encode() const;
  /// nullopt for an empty or invalid record.
  [[nodiscard]] static std::optional<OwnerRecord> decode(ByteView bytes);
  /// True if both records are of the same ownership, whatever the phase and heartbeat.
  [[nodiscard]] bool same_owner(const OwnerRecord& other) const {
    return pid == other.pid && started == other.started;
  }
  [[nodiscard]] bool has_key(const Digest& other_key) const;
};
inline constexpr std::size_t kOwnerRecordBytes = 64;

/// Time limits of locks; tests shorten them.
struct LockTimes {
  std::chrono::milliseconds heartbeat{1000};       // the holder's
  std::chrono::milliseconds no_heartbeat{10'000};  // then a holder counts as dead
  std::chrono::milliseconds no_record{1000};       // of a holder that wrote none
  std::chrono::milliseconds no_pulse{1000};        // of whoever waits for a slot
  std::chrono::milliseconds compile_grace{5'000};  // beyond the holder's build limit
  std::chrono::milliseconds shortest_pause{1};     // between two tries, jittered
  std::chrono::milliseconds longest_pause{50};
};

/// Owns one record until it is released or destroyed.
/// Thread safety: one thread at a time. One thread per process writes all heartbeats;
/// it lives while anything is held. Fork safety: in a forked child it holds nothing and
/// releases nothing; the child's copy of the descriptor is closed, so that the lock
/// ends with the parent.
class OwnedRange {
 public:
  struct Place {
    FileSystem* file_system;
    std::filesystem::path file;
    std::uint64_t record;  // number, from 0
  };

  OwnedRange() = default;

  /// One attempt; never blocks. nullopt if another process or thread holds the record.
  /// Writes `record`, with pid, times, builds_ended and timed_out filled in. Errors: as
  /// FileLock::try_lock.
  [[nodiscard]] static Result<std::optional<OwnedRange>> try_own(
      const Place& place, OwnerRecord record, std::chrono::milliseconds heartbeat);

  /// The holder, according to the record; a hint. It may be the last one (kReleased),
  /// where the next has not written its own yet. nullopt: no valid record.
  [[nodiscard]] static std::optional<OwnerRecord> owner(const Place& place);

  [[nodiscard]] bool held() const;
  /// What this holder wrote, or would have written if that had worked.
  [[nodiscard]] OwnerRecord record() const;
  /// True if the last holder's build, of the same key, was killed from outside.
  [[nodiscard]] bool is_after_killed() const;
  /// Writes the phase for waiters. Best effort: a record is a hint.
  void set_phase(Phase phase);
  /// Releases it after a build of its key, and says in the record that this has ended,
  /// and how: nobody who waited for it waits for another one. After release() alone,
  /// and kKilled, they wait for the next holder's build.
  void end_build(BuildEnd end = BuildEnd::kOther);
  void release() noexcept { held_.reset(); }

 private:
  struct Held;
  struct Release {
    void operator()(Held* held) const noexcept;
  };

  std::unique_ptr<Held, Release> held_;
};

/// Decides from successive reads of a holder's record whether to keep waiting for it.
/// Compares heartbeats with each other, not only with the clock, because two containers
/// may disagree about the clock.
/// Thread safety: one thread at a time.
class OwnerWatch {
 public:
  explicit OwnerWatch(const LockTimes& times) : times_(times) {}

  /// nullopt: keep waiting. Otherwise the reason to stop, which names the holder.
  [[nodiscard]] std::optional<std::string> give_up(
      const std::optional<OwnerRecord>& seen);

 private:
  const LockTimes times_;
  std::optional<OwnerRecord> last_;
  std::optional<std::chrono::steady_clock::time_point> last_change_;
};

/// Random pauses from shortest_pause to a ceiling that doubles with each call, up to
/// longest_pause. The caller sleeps.
class BackOff {
 public:
  explicit BackOff(const LockTimes& times);
  [[nodiscard]] std::chrono::nanoseconds next();

 private:
  std::chrono::nanoseconds ceiling_;
  const std::chrono::nanoseconds shortest_;
  const std::chrono::nanoseconds longest_;
  std::uint64_t random_;
};

/// Returns after `duration`, or at once when `stop` is requested.
void stoppable_sleep(std::chrono::nanoseconds duration, const std::stop_token& stop);

}  // namespace kiln::cache
