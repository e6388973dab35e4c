// A 64-byte record in a lock file, owned through an OFD lock on exactly those bytes.
// The lock says that somebody holds it; the record, a hint, says who. FORMAT.md,
// "Locks".

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cache/file_system.h"
#include "codec/digest.h"
#include "kiln/result.h"

namespace kiln::cache {

/// CLOCK_BOOTTIME: runs on while the machine sleeps, and is never set.
using BootTime = std::chrono::nanoseconds;
[[nodiscard]] BootTime boot_time_now();

enum class Phase : std::uint8_t { kStarting = 1, kQueued, kCompiling, kPublishing };

/// "starting", "queued for a slot", "compiling", "publishing".
[[nodiscard]] std::string_view to_string(Phase phase);

/// What a holder says of itself.
struct OwnerRecord {
  pid_t pid = 0;
  Phase phase = Phase::kStarting;
  Digest key;          // only its first 16 bytes are kept
  BootTime started{};  // of the ownership
  BootTime phase_started{};
  BootTime heartbeat{};
  std::chrono::milliseconds build_limit{};  // after which the holder kills its build

  [[nodiscard]] Bytes encode() const;
  /// nullopt for a record that is empty or makes no sense.
  [[nodiscard]] static std::optional<OwnerRecord> decode(ByteView bytes);
  /// True if both are of one ownership, whatever its phase and heartbeat.
  [[nodiscard]] bool same_owner(const OwnerRecord& other) const;
  [[nodiscard]] bool is_about(const Digest& other_key) const;
};
inline constexpr std::size_t kOwnerRecordBytes = 64;

/// True if two looks at a record saw no sign of life in between.
[[nodiscard]] bool same_look(const std::optional<OwnerRecord>& a,
                             const std::optional<OwnerRecord>& b);

/// Time limits of locks; tests shorten them.
struct LockTimes {
  std::chrono::milliseconds heartbeat{1000};       // the holder's
  std::chrono::milliseconds no_heartbeat{10'000};  // after which a holder is given up
  std::chrono::milliseconds compile_grace{5'000};  // beyond the holder's build limit
  std::chrono::milliseconds shortest_pause{1};     // between two tries, jittered
  std::chrono::milliseconds longest_pause{50};
};

/// Owns one record until it is released or destroyed.
/// Thread safety: one thread at a time. The heartbeat is written by a thread of its
/// own, one a process, that lives while anything is held. Fork safety: in a forked
/// child it holds nothing and releases nothing; the child's copy of the descriptor is
/// closed, so that the parent's death frees the record.
class OwnedRange {
 public:
  struct Place {
    FileSystem* file_system;
    std::filesystem::path file;
    std::uint64_t record;  // number, from 0
  };

  OwnedRange();
  OwnedRange(OwnedRange&&) noexcept;
  OwnedRange& operator=(OwnedRange&&) noexcept;
  OwnedRange(const OwnedRange&) = delete;
  OwnedRange& operator=(const OwnedRange&) = delete;
  ~OwnedRange();

  /// One attempt; never waits. nullopt if somebody else holds it (also another thread
  /// of this process). `record` is written with pid and times filled in.
  /// Errors: kUnavailable where the file system has no locks; kUntrusted, for a file
  /// that is not ours alone; kIo.
  [[nodiscard]] static Result<std::optional<OwnedRange>> try_own(
      const Place& place, OwnerRecord record, std::chrono::milliseconds heartbeat);

  /// Who holds it, as far as the record tells; a hint. nullopt: nobody says.
  [[nodiscard]] static std::optional<OwnerRecord> owner(const Place& place);

  [[nodiscard]] bool held() const;
  /// Tells the waiters. Best effort: a record is a hint.
  void enter(Phase phase);
  void release() noexcept;

 private:
  struct Held;
  explicit OwnedRange(std::unique_ptr<Held> held);

  std::unique_ptr<Held> held_;
};

/// Decides whether a holder is worth waiting for, from one look at its record after
/// another. It compares the holder's heartbeats with each other rather than with the
/// clock alone, because two containers may disagree about the clock.
/// Thread safety: one thread at a time.
class OwnerWatch {
 public:
  explicit OwnerWatch(const LockTimes& times) : times_(times) {}

  /// nullopt: go on waiting. Else why not, as text that names the holder.
  [[nodiscard]] std::optional<std::string> give_up(
      const std::optional<OwnerRecord>& seen);

 private:
  const LockTimes times_;
  std::optional<OwnerRecord> last_;
  std::optional<std::chrono::steady_clock::time_point> last_change_;
};

/// Sleeps a random time between the pauses of `times`, longer from turn to turn.
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

}  // namespace kiln::cache
