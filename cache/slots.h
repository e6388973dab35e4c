// Limits how many builds run at once on a machine, in all processes together.

#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
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
    OwnedRange slot{};  // held if and only if kHeld; releases itself
    std::string reason{};
    std::chrono::nanoseconds waited{};
  };
  struct SlotRequest {
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
  /// is ignored, as if there were one slot more. Those before us who do not take a slot
  /// that is free for LockTimes::no_turn are passed by together, for this slot and
  /// those behind it (a process may have fewer slots than we have). The process
  /// remembers that for LockTimes::no_heartbeat: they may only have been slow. Whoever
  /// claims the slot is awake, and only passed by after three times as long.
  [[nodiscard]] Acquired acquire(const SlotRequest& request);

 private:
  struct Wait;
  struct Holder {
    OwnerWatch watch;
    bool is_ignored = false;
  };

  [[nodiscard]] OwnedRange::Place place(unsigned slot) const {
    return {&file_system_, folder_.path / "slots", slot};
  }
  void watch_holders(const QueuePlace& queue) KILN_REQUIRES(mutex_);
  [[nodiscard]] std::optional<unsigned> next_slot(Wait& wait) KILN_REQUIRES(mutex_);
  void pass_by(Wait& wait) KILN_REQUIRES(mutex_);
  [[nodiscard]] std::optional<unsigned> free_slot(const QueuePlace& queue,
                                                  unsigned from) KILN_REQUIRES(mutex_);

  const LockFolder& folder_;
  FileSystem& file_system_;
  Counters& counters_;
  const LockTimes times_;
  const LazyCount count_;

  Mutex mutex_;
  // By slot, as all waiting threads of this process have seen them.
  std::map<unsigned, Holder> holders_ KILN_GUARDED_BY(mutex_);
  std::optional<OwnerRecord> living_ KILN_GUARDED_BY(mutex_);  // one of the holders
  std::chrono::steady_clock::time_point look_at_ KILN_GUARDED_BY(mutex_);
  // Who was passed by, and the first slot that may be taken before them.
  std::map<Ticket, unsigned> passed_by_ KILN_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point forget_at_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
