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

  /// `count` slots, of which count.now() are given. The references must outlive this.
  Slots(const LockFolder& folder, FileSystem& file_system, Counters& counters,
        LockTimes times, LazyCount count);

  /// Waits for a free slot; slots are given in the order of asking, among all
  /// processes. Goes on without one (kBypassed) if locks do not work, or if nobody who
  /// asked before left the queue for build_limit + LockTimes::compile_grace.
  /// A holder without a heartbeat for LockTimes::no_heartbeat, or over its own limit,
  /// is ignored, as if there were one slot more. Those before us without a pulse for
  /// LockTimes::no_pulse are stopped, and passed by until they pulse again. A process
  /// that has fewer slots than ours leaves us the others.
  [[nodiscard]] Acquired acquire(const SlotRequest& request);

 private:
  using Clock = std::chrono::steady_clock;
  struct Wait;
  struct Holder {
    OwnerWatch watch;
    bool is_ignored = false;
  };
  /// The last one of a place in the queue that this process has seen.
  struct Pulse {
    std::optional<std::uint64_t> value;
    Clock::time_point since;
    Clock::time_point looked;
  };

  [[nodiscard]] OwnedRange::Place place(unsigned slot) const {
    return {&file_system_, folder_.path / "slots", slot};
  }
  void watch_holders(const QueuePlace& queue) KILN_REQUIRES(mutex_);
  [[nodiscard]] std::optional<unsigned> next_slot(Wait& wait) KILN_REQUIRES(mutex_);
  [[nodiscard]] Clock::duration quiet_for(const QueuePlace& queue, Ticket ticket)
      KILN_REQUIRES(mutex_);
  [[nodiscard]] std::optional<unsigned> free_slot(const QueuePlace& queue,
                                                  unsigned others)
      KILN_REQUIRES(mutex_);
  [[nodiscard]] unsigned room() KILN_REQUIRES(mutex_);

  const LockFolder& folder_;
  FileSystem& file_system_;
  Counters& counters_;
  const LockTimes times_;
  const LazyCount count_;

  Mutex mutex_;
  // By slot, as all waiting threads of this process have seen them.
  std::map<unsigned, Holder> holders_ KILN_GUARDED_BY(mutex_);
  std::optional<OwnerRecord> living_ KILN_GUARDED_BY(mutex_);  // one of the holders
  Clock::time_point look_at_ KILN_GUARDED_BY(mutex_);
  Clock::time_point ask_room_at_ KILN_GUARDED_BY(mutex_);
  unsigned room_ KILN_GUARDED_BY(mutex_) = 0;                      // as it was then
  std::map<std::uint64_t, Pulse> pulses_ KILN_GUARDED_BY(mutex_);  // by ticket
};

}  // namespace kiln::cache
