// Limits how many builds run at once on a machine, in all processes together.

#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>

#include "cache/counters.h"
#include "cache/lock_folder.h"
#include "cache/owned_range.h"
#include "cache/slot_queue.h"
#include "util/lazy_count.h"
#include "util/mutex.h"

namespace kiln::cache {

enum class SlotOutcome : std::uint8_t {
  kHeld,
  kBypassed,   // go on without one; `reason` says why
  kCancelled,  // `stop` was requested
};

/// Thread safety: every method may run concurrently.
class Slots {
 public:
  struct Acquired {
    SlotOutcome outcome = SlotOutcome::kBypassed;
    OwnedRange slot;  // held if and only if kHeld; releases itself
    std::string reason;
    std::chrono::nanoseconds waited{};
  };
  struct Request {
    Digest key{};  // of the build; written to the slot's record
    std::chrono::milliseconds build_limit{300'000};
    std::stop_token stop{};
    /// Called about once a second with a holder that we wait for; may be empty.
    std::function<void(const OwnerRecord&)> on_wait{};
  };

  /// `count` slots. The references must outlive this.
  Slots(const LockFolder& folder, FileSystem& file_system, Counters& counters,
        LockTimes times, LazyCount count);

  /// Waits for a free slot; slots are given in the order of asking, among all
  /// processes. Goes on without one (kBypassed) if locks do not work, or if nobody who
  /// asked before left the queue for build_limit + LockTimes::compile_grace.
  /// A holder without a heartbeat for LockTimes::no_heartbeat, or over its own limit,
  /// is ignored, as if there were one slot more. Whoever stands before us and does not
  /// take a slot that is free for LockTimes::no_turn is passed by. This process
  /// remembers both, and so waits for each only once.
  [[nodiscard]] Acquired acquire(const Request& request);

 private:
  class Wait;

  [[nodiscard]] std::filesystem::path file() const { return folder_.path / "slots"; }
  [[nodiscard]] OwnedRange::Place place(unsigned slot) const;
  [[nodiscard]] Result<OwnedRange> try_any(Wait& wait);
  [[nodiscard]] bool ignores_holder(unsigned slot, Wait& wait);
  [[nodiscard]] bool has_free_slot(const QueuePlace& queue) const;
  [[nodiscard]] bool is_our_turn(Wait& wait);
  [[nodiscard]] std::set<Ticket> passed_by();

  const LockFolder& folder_;
  FileSystem& file_system_;
  Counters& counters_;
  const LockTimes times_;
  const LazyCount count_;

  Mutex mutex_;
  std::map<unsigned, std::optional<OwnerRecord>> ignored_holders_
      KILN_GUARDED_BY(mutex_);
  std::set<Ticket> passed_by_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
