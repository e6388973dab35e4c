#include "cache/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cache/stoppable_sleep.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::cache {
namespace {

using Clock = std::chrono::steady_clock;

// No more slots than this are tried, however many holders are ignored.
constexpr unsigned kMaxSlots = 4096;
constexpr std::chrono::seconds kTellEvery{1};

}  // namespace

/// What one caller of acquire() has seen so far.
class Slots::Wait {
 public:
  Wait(const Request& asked, QueuePlace taken)
      : request(asked), place(std::move(taken)) {}

  const Request& request;
  const QueuePlace place;
  std::map<unsigned, OwnerWatch> watches{};  // by slot

  /// Notes who stands before us; nullopt: nobody.
  void see_before(std::optional<Ticket> ticket) {
    if (ticket == before_)
      return;
    before_ = ticket;
    moved_ = Clock::now();
    free_since_.reset();
  }
  /// For how long a slot has been free although whoever stands before us could take it.
  [[nodiscard]] Clock::duration free_for(bool is_free) {
    if (!is_free)
      free_since_.reset();
    else if (!free_since_)
      free_since_ = Clock::now();
    return free_since_ ? Clock::now() - *free_since_ : Clock::duration::zero();
  }
  [[nodiscard]] std::optional<Ticket> before() const { return before_; }
  /// Since the queue before us moved, or we became the first.
  [[nodiscard]] Clock::duration standing_for() const { return Clock::now() - moved_; }
  [[nodiscard]] Clock::duration waited() const { return Clock::now() - began_; }

  [[nodiscard]] bool tells_now() const {
    return request.on_wait && Clock::now() >= tell_at_;
  }
  void tell(const std::optional<OwnerRecord>& holder) {
    if (!tells_now() || !holder || holder->phase == Phase::kReleased)
      return;
    request.on_wait(*holder);
    tell_at_ = Clock::now() + kTellEvery;
  }

 private:
  const Clock::time_point began_ = Clock::now();
  Clock::time_point moved_ = began_;
  Clock::time_point tell_at_{};
  std::optional<Ticket> before_;
  std::optional<Clock::time_point> free_since_;
};

Slots::Slots(const LockFolder& folder, FileSystem& file_system, Counters& counters,
             LockTimes times, LazyCount count)
    : folder_(folder),
      file_system_(file_system),
      counters_(counters),
      times_(times),
      count_(std::move(count)) {}

OwnedRange::Place Slots::place(unsigned slot) const {
  return {&file_system_, file(), slot};
}

Slots::Acquired Slots::acquire(const Request& request) {
  const auto bypassed = [&](std::string reason, Clock::duration waited = {}) {
    counters_.add(Counter::kLockBypassed);
    return Acquired{SlotOutcome::kBypassed, {}, std::move(reason), waited};
  };
  if (!folder_.usable())
    return bypassed(folder_.why);
  auto joined = QueuePlace::join(file_system_, file());
  if (!joined) {
    counters_.add_if_untrusted(joined.error());
    return bypassed(std::move(joined).error().message);
  }
  Wait wait(request, *std::move(joined));
  BackOff pause(times_);
  for (;;) {
    if (request.stop.stop_requested())
      return {SlotOutcome::kCancelled, {}, {}, wait.waited()};
    if (is_our_turn(wait)) {
      auto owned = try_any(wait);
      if (!owned) {
        counters_.add_if_untrusted(owned.error());
        return bypassed(std::move(owned).error().message, wait.waited());
      }
      if (owned->held())
        return {SlotOutcome::kHeld, *std::move(owned), {}, wait.waited()};
    } else {
      for (unsigned slot = 0;
           wait.tells_now() && slot < std::min(count_.get(), kMaxSlots); ++slot)
        wait.tell(OwnedRange::owner(place(slot)));
    }
    if (wait.standing_for() > request.build_limit + times_.compile_grace) {
      return bypassed(
          fmt::format(
              "nobody in the queue for a build slot has moved for {}",
              format_duration(std::chrono::duration_cast<std::chrono::milliseconds>(
                  wait.standing_for()))),
          wait.waited());
    }
    stoppable_sleep(pause.next(), request.stop);
  }
}

/// True for the first in the queue. Passes by whoever does not take a free slot: it is
/// stopped.
bool Slots::is_our_turn(Wait& wait) {
  for (;;) {
    wait.see_before(wait.place.before(passed_by()));
    if (!wait.before())
      return true;
    if (wait.free_for(has_free_slot(wait.place)) < times_.no_turn)
      return false;
    const MutexLock lock(mutex_);
    passed_by_.insert(*wait.before());
  }
}

std::set<Ticket> Slots::passed_by() {
  const MutexLock lock(mutex_);
  return passed_by_;
}

bool Slots::has_free_slot(const QueuePlace& queue) const {
  for (unsigned slot = 0; slot < std::min(count_.get(), kMaxSlots); ++slot) {
    if (queue.is_free(slot * kOwnerRecordBytes, kOwnerRecordBytes))
      return true;
  }
  return false;
}

/// Tries each slot once. The result holds nothing if all are taken.
Result<OwnedRange> Slots::try_any(Wait& wait) {
  OwnerRecord record;
  record.key = wait.request.key;
  record.build_limit = wait.request.build_limit;
  record.phase = Phase::kCompiling;
  // Each ignored holder adds one slot at the end.
  unsigned slot_count = count_.get();
  for (unsigned slot = 0; slot < std::min(slot_count, kMaxSlots); ++slot) {
    auto owned = KILN_TRY(OwnedRange::try_own(place(slot), record, times_.heartbeat));
    if (owned)
      return *std::move(owned);
    if (ignores_holder(slot, wait))
      ++slot_count;
  }
  return OwnedRange();
}

bool Slots::ignores_holder(unsigned slot, Wait& wait) {
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
  if (!wait.watches.try_emplace(slot, times_).first->second.give_up(owner)) {
    wait.tell(owner);
    return false;
  }
  counters_.add(Counter::kSlotHolderIgnored);
  const MutexLock lock(mutex_);
  ignored_holders_.insert_or_assign(slot, owner);
  return true;
}

}  // namespace kiln::cache
