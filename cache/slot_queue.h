// The queue for build slots, of all processes of the machine: who asks first gets the
// next free slot. A place in it is a lock on one byte of the slots' file, at the time
// of asking or behind all other places, so that it ends with its process and needs no
// room on the disk. A second byte says who is awake.

#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "cache/file_lock.h"
#include "kiln/result.h"

namespace kiln::cache {

/// Identifies a place in the queue; the lower one is served first.
using Ticket = std::uint64_t;

/// A place in the queue, held until it is destroyed.
/// Thread safety: one thread at a time. Fork safety: as FileLock.
class QueuePlace {
 public:
  /// Takes the last place. Errors: as FileLock::try_lock; kUnavailable if somebody has
  /// locked so much of the file that there is no last place.
  [[nodiscard]] static Result<QueuePlace> join(FileSystem& file_system,
                                               const std::filesystem::path& file);

  /// All places before this one, in order; later it can only become fewer. Empty where
  /// the system does not tell.
  [[nodiscard]] std::vector<Ticket> before() const;
  [[nodiscard]] bool is_taken(Ticket ticket) const;

  /// Tells those behind that this place has seen a free slot: it is awake. Best effort.
  void claim(FileSystem& file_system, const std::filesystem::path& file);
  void end_claim() { claim_.release(); }
  [[nodiscard]] bool is_claimed(Ticket ticket) const;

  /// False if somebody holds a part of these bytes of the file.
  [[nodiscard]] bool is_free(std::uint64_t offset, std::uint64_t bytes) const {
    return !lock_.other(offset, bytes);
  }

 private:
  QueuePlace(FileLock lock, Ticket ticket) : lock_(std::move(lock)), ticket_(ticket) {}

  FileLock lock_;
  Ticket ticket_;
  FileLock claim_{};  // held or not
};

}  // namespace kiln::cache
