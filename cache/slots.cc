#include "cache/slots.h"

#include <algorithm>
#include <utility>

#include "cache/stoppable_sleep.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

// No more slots than this are tried, however many holders are ignored.
constexpr unsigned kMaxSlots = 4096;

}  // namespace

Slots::Slots(const LockFolder& folder, FileSystem& file_system, Counters& counters,
             LockTimes times, LazyCount count)
    : folder_(folder),
      file_system_(file_system),
      counters_(counters),
      times_(times),
      count_(std::move(count)) {}

OwnedRange::Place Slots::place(unsigned slot) const {
  return {&file_system_, folder_.path / "slots", slot};
}

Slots::Acquired Slots::acquire(const Request& request) {
  const auto bypassed = [&](std::string reason) {
    counters_.add(Counter::kLockBypassed);
    return Acquired{SlotOutcome::kBypassed, {}, std::move(reason)};
  };
  if (!folder_.usable())
    return bypassed(folder_.why);
  Watches watches;
  BackOff pause(times_);
  for (;;) {
    if (request.stop.stop_requested() ||
        (request.deadline && std::chrono::steady_clock::now() >= *request.deadline))
      return {SlotOutcome::kCancelled, {}, {}};
    auto owned = try_any(request, watches);
    if (!owned) {
      counters_.add_if_untrusted(owned.error());
      return bypassed(std::move(owned).error().message);
    }
    if (owned->held())
      return {SlotOutcome::kHeld, *std::move(owned), {}};
    stoppable_sleep(pause.next(), request.stop);
  }
}

/// Tries each slot once. The result holds nothing if all are taken.
Result<OwnedRange> Slots::try_any(const Request& request, Watches& watches) {
  OwnerRecord record;
  record.key = request.key;
  record.build_limit = request.build_limit;
  record.phase = Phase::kCompiling;
  // Each ignored holder adds one slot at the end.
  unsigned slot_count = count_.get();
  for (unsigned slot = 0; slot < std::min(slot_count, kMaxSlots); ++slot) {
    auto owned = KILN_TRY(OwnedRange::try_own(place(slot), record, times_.heartbeat));
    if (owned)
      return *std::move(owned);
    if (ignores_holder(slot, watches))
      ++slot_count;
  }
  return OwnedRange();
}

bool Slots::ignores_holder(unsigned slot, Watches& watches) {
  const std::optional<OwnerRecord> owner = OwnedRange::owner(place(slot));
  {
    const MutexLock lock(mutex_);
    const auto known = ignored_holders_.find(slot);
    if (known != ignored_holders_.end()) {
      if (is_unchanged(owner, known->second))
        return true;
      ignored_holders_.erase(known);  // alive after all, or a new holder
    }
  }
  if (!watches.try_emplace(slot, times_).first->second.give_up(owner))
    return false;
  counters_.add(Counter::kSlotHolderIgnored);
  const MutexLock lock(mutex_);
  ignored_holders_.insert_or_assign(slot, owner);
  return true;
}

}  // namespace kiln::cache
