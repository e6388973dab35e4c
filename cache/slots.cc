#include "cache/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cache/stoppable_sleep.h"
#include "util/units.h"

namespace kiln::cache {
namespace {

using Clock = std::chrono::steady_clock;

// No more slots than this are tried, however many holders are ignored.
constexpr unsigned kMaxSlots = 4096;
constexpr std::chrono::seconds kTellEvery{1};
// Who is not the first looks at all slots only once in so many looks at the queue.
constexpr unsigned kLooksPerSearch = 16;
// Whoever has claimed a free slot and not taken it in so many turns is stopped, too.
constexpr int kMostTurns = 3;

bool is_free(const QueuePlace& queue, unsigned slot) {
  return queue.is_free(slot * kOwnerRecordBytes, kOwnerRecordBytes);
}

}  // namespace

/// What one caller of acquire() has seen so far.
struct Slots::Wait {
  QueuePlace place;
  std::vector<Ticket> before = place.before();
  Clock::time_point moved = Clock::now();  // when one of them was last seen to leave
  std::optional<unsigned> free{};          // a slot that they do not take
  Clock::time_point free_since{};
  unsigned looks = 0;
  Clock::time_point looked{};

  [[nodiscard]] int ahead() const { return static_cast<int>(before.size()); }

  void forget_free() {
    free.reset();
    place.end_claim();
  }
};

Slots::Slots(const LockFolder& folder, FileSystem& file_system, Counters& counters,
             LockTimes times, LazyCount count)
    : folder_(folder),
      file_system_(file_system),
      counters_(counters),
      times_(times),
      count_(std::move(count)) {}

Slots::Acquired Slots::acquire(const SlotRequest& request) {
  const auto began = Clock::now();
  const auto ended = [&](SlotOutcome outcome, OwnedRange slot, std::string reason) {
    if (outcome == SlotOutcome::kBypassed)
      counters_.add(Counter::kLockBypassed);
    return Acquired{.outcome = outcome,
                    .slot = std::move(slot),
                    .reason = std::move(reason),
                    .waited = Clock::now() - began};
  };
  const auto failed = [&](Error error) {
    counters_.add_if_untrusted(error);
    return ended(SlotOutcome::kBypassed, {}, std::move(error).message);
  };
  if (!folder_.usable())
    return ended(SlotOutcome::kBypassed, {}, folder_.why);
  auto joined = QueuePlace::join(file_system_, place(0).file);
  if (!joined)
    return failed(std::move(joined).error());
  OwnerRecord record;
  record.build_limit = request.build_limit;
  record.phase = Phase::kCompiling;
  Wait wait{*std::move(joined)};
  for (Clock::time_point tell_at = began;;) {
    if (request.stop.stop_requested())
      return ended(SlotOutcome::kCancelled, {}, {});
    std::optional<OwnerRecord> holder;
    std::optional<unsigned> slot;
    {
      const MutexLock lock(mutex_);
      watch_holders(wait.place);
      holder = living_;
      slot = next_slot(wait);
    }
    if (slot) {
      auto owned = OwnedRange::try_own(place(*slot), record, times_.heartbeat);
      if (!owned)
        return failed(std::move(owned).error());
      if (*owned)
        return ended(SlotOutcome::kHeld, **std::move(owned), {});
    }
    const auto now = Clock::now();
    if (holder && request.on_wait && now >= tell_at) {
      request.on_wait(*holder);
      tell_at = now + kTellEvery;
    }
    const auto stood = std::chrono::floor<std::chrono::milliseconds>(now - wait.moved);
    if (stood > request.build_limit + times_.compile_grace) {
      return ended(SlotOutcome::kBypassed, {},
                   fmt::format("nobody in the queue for a build slot has moved for {}",
                               format_duration(stood)));
    }
    // Whoever is far behind cannot be the next one.
    stoppable_sleep(
        std::min(times_.shortest_pause * 2 * (1 + wait.ahead()), times_.longest_pause),
        request.stop);
  }
}

/// Looks at the holders of all slots, twice in a heartbeat for all threads of this
/// process, so that each knows of a dead one as soon as it is the first in the queue.
void Slots::watch_holders(const QueuePlace& queue) {
  const auto now = Clock::now();
  if (now < look_at_)
    return;
  if (now > look_at_ + times_.heartbeat)  // nobody looked in between
    std::erase_if(holders_, [](const auto& each) { return !each.second.is_ignored; });
  look_at_ = now + times_.heartbeat / 2;
  living_.reset();
  unsigned end = count_.get();
  for (unsigned slot = 0; slot < std::min(end, kMaxSlots); ++slot) {
    if (is_free(queue, slot)) {
      holders_.erase(slot);
      continue;
    }
    const std::optional<OwnerRecord> owner = OwnedRange::owner(place(slot));
    auto& [watch, is_ignored] =
        holders_.try_emplace(slot, Holder{OwnerWatch(times_)}).first->second;
    const bool was_ignored =
        std::exchange(is_ignored, watch.give_up(owner).has_value());
    end += is_ignored ? 1 : 0;
    if (is_ignored && !was_ignored)
      counters_.add(Counter::kSlotHolderIgnored);
    if (!is_ignored && owner && owner->phase != Phase::kReleased)
      living_ = owner;
  }
}

/// The slot that the caller may try now: any for the first in the queue; for whoever
/// has passed by all before it, one that they leave free.
std::optional<unsigned> Slots::next_slot(Wait& wait) {
  if (Clock::now() >= forget_at_)
    passed_by_.clear();
  std::optional<unsigned> from = 0;
  for (auto at = wait.before.begin(); from && at != wait.before.end();) {
    if (!wait.place.is_taken(*at)) {
      at = wait.before.erase(at);
      wait.moved = Clock::now();
      wait.forget_free();
      continue;
    }
    const auto known = passed_by_.find(*at++);
    from = known == passed_by_.end() ? std::nullopt
                                     : std::optional(std::max(*from, known->second));
  }
  if (from) {
    const auto slot = free_slot(wait.place, *from);
    if (slot || from == 0U)
      return slot;
  }
  pass_by(wait);
  return std::nullopt;
}

/// Remembers those before the caller who have left a slot free for a turn and not
/// claimed it. Whoever has claimed it is awake, takes it in turn, and keeps its place.
void Slots::pass_by(Wait& wait) {
  const auto now = Clock::now();
  // Whoever was stopped itself has not seen what happened meanwhile.
  const bool was_away = now - std::exchange(wait.looked, now) > times_.no_turn / 2;
  if (wait.free && (was_away || !is_free(wait.place, *wait.free)))
    wait.forget_free();
  if (!wait.free && wait.looks++ % kLooksPerSearch == 0) {
    wait.free = free_slot(wait.place, 0);
    wait.free_since = now;
    if (wait.free)
      wait.place.claim(file_system_, place(0).file);
  }
  const auto left_free = now - wait.free_since;
  if (!wait.free || left_free < times_.no_turn)
    return;
  if (passed_by_.empty())
    forget_at_ = now + times_.no_heartbeat;
  for (const Ticket ticket : wait.before) {
    if (left_free < kMostTurns * times_.no_turn && wait.place.is_claimed(ticket))
      continue;
    unsigned& first = passed_by_.try_emplace(ticket, *wait.free).first->second;
    first = std::min(first, *wait.free);
  }
}

/// The lowest free slot, not below `from`. Each ignored holder adds one at the end.
std::optional<unsigned> Slots::free_slot(const QueuePlace& queue, unsigned from) {
  unsigned end = count_.get();
  for (unsigned slot = 0; slot < std::min(end, kMaxSlots); ++slot) {
    if (is_free(queue, slot)) {
      if (slot >= from)
        return slot;
    } else if (const auto holder = holders_.find(slot);
               holder != holders_.end() && holder->second.is_ignored) {
      ++end;
    }
  }
  return std::nullopt;
}

}  // namespace kiln::cache
