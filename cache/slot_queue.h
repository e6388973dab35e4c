// The queue for build slots, of all processes of the machine: who asks first gets the
// next free slot. A place in it is a lock on a few bytes of the slots' file, at the
// time of asking or behind all other places, so that it ends with its process and needs
// no room on the disk. Its length says how many slots the process has; a lock that
// moves says that it is awake.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "cache/file_lock.h"
#include "kiln/result.h"

namespace kiln::cache {

/// Another place in the queue.
struct Ticket {
  std::uint64_t number;  // the lower one is served first
  unsigned slots;        // its process takes the slots below
};

/// A place in the queue, held until it is destroyed.
/// Thread safety: one thread at a time. Fork safety: as FileLock.
class QueuePlace {
 public:
  static constexpr unsigned kMostSlots = 4096;

  /// Takes the last place, for whoever takes any of the first `slots` slots. Errors: as
  /// FileLock::try_lock; kUnavailable if somebody has locked so much of the file that
  /// there is no last place.
  [[nodiscard]] static Result<QueuePlace> join(FileSystem& file_system,
                                               const std::filesystem::path& file,
                                               unsigned slots);

  /// All places before this one, in order; later it can only become fewer. Empty where
  /// the system does not tell.
  [[nodiscard]] std::vector<Ticket> before() const;
  [[nodiscard]] bool is_taken(Ticket ticket) const;

  /// Tells the others that whoever has this place is awake. Best effort.
  void pulse();
  /// Another value after each pulse of that place.
  [[nodiscard]] std::optional<std::uint64_t> pulse_of(Ticket ticket) const;

  /// False if somebody holds a part of these bytes of the file.
  [[nodiscard]] bool is_free(std::uint64_t offset, std::uint64_t bytes) const {
    return !lock_.other(offset, bytes);
  }

 private:
  QueuePlace(FileLock lock, FileLock::Range range, std::uint64_t number)
      : lock_(std::move(lock)), range_(std::move(range)), number_(number) {}

  FileLock lock_;
  FileLock::Range range_;
  std::uint64_t number_;
  FileLock pulse_{};  // held or not
  std::uint64_t pulses_ = 0;
};

}  // namespace kiln::cache
