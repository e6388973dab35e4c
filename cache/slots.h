// Limits how many builds run at once on a machine, in all processes together.

#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <stop_token>
#include <string>

#include "cache/counters.h"
#include "cache/lock_folder.h"
#include "cache/owned_range.h"
#include "util/lazy_count.h"
#include "util/mutex.h"

namespace kiln::cache {

enum class SlotOutcome : std::uint8_t {
  kHeld,
  kBypassed,   // go on without one: locks do not work here; `reason` says why
  kCancelled,  // `stop` was requested, or `deadline` passed
};

/// Thread safety: every method may run concurrently.
class Slots {
 public:
  struct Acquired {
    SlotOutcome outcome = SlotOutcome::kBypassed;
    OwnedRange slot;  // held if and only if kHeld; releases itself
    std::string reason;
  };
  struct Request {
    Digest key{};  // of the build; written to the slot's record
    std::chrono::milliseconds build_limit{300'000};
    std::stop_token stop{};
    std::optional<std::chrono::steady_clock::time_point> deadline{};
  };

  /// `count` slots. The references must outlive this.
  Slots(const LockFolder& folder, FileSystem& file_system, Counters& counters,
        LockTimes times, LazyCount count);

  /// Waits for a free slot. A holder without a heartbeat for LockTimes::no_heartbeat is
  /// ignored, as if there were one slot more. This process remembers it, and so waits
  /// for it only once.
  [[nodiscard]] Acquired acquire(const Request& request);

 private:
  using Watches = std::map<unsigned, OwnerWatch>;

  [[nodiscard]] OwnedRange::Place place(unsigned slot) const;
  [[nodiscard]] Result<OwnedRange> try_any(const Request& request, Watches& watches);
  [[nodiscard]] bool ignores_holder(unsigned slot, Watches& watches);

  const LockFolder& folder_;
  FileSystem& file_system_;
  Counters& counters_;
  const LockTimes times_;
  const LazyCount count_;

  Mutex mutex_;
  std::map<unsigned, std::optional<OwnerRecord>> ignored_holders_
      KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
