#include "cache/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "util/units.h"

namespace kiln::cache {
namespace {

// No more slots than this are tried, however many holders are ignored.
constexpr unsigned kMaxSlots = QueuePlace::kMostSlots;
constexpr std::chrono::seconds kTellEvery{1};

bool is_free(const QueuePlace& queue, unsigned slot) {
  return queue.is_free(slot * kOwnerRecordBytes, kOwnerRecordBytes);
}

}  // namespace

/// What one caller of acquire() has seen so far.
struct Slots::Wait {
  QueuePlace place;
  std::vector<Ticket> before = place.before();
  Clock::time_point moved = Clock::now();  // when one of them was last seen to leave

  Clock::time_point pulse_at{};

  [[nodiscard]] int ahead() const { return static_cast<int>(before.size()); }

  void pulse(Clock::time_point now, std::chrono::milliseconds no_pulse) {
    if (now < pulse_at)
      return;
    place.pulse();
    pulse_at = now + no_pulse / 4;
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
  auto joined = QueuePlace::join(file_system_, place(0).file, count_.get());
  if (!joined)
    return failed(std::move(joined).error());
  OwnerRecord record;
  record.build_limit = request.build_limit;
  record.phase = Phase::kCompiling;
  Wait wait{*std::move(joined)};
  wait.pulse_at = began + times_.no_pulse / 4;  // a short wait needs none
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
    wait.pulse(now, times_.no_pulse);
    const auto stood = std::chrono::floor<std::chrono::milliseconds>(now - wait.moved);
    if (stood > request.build_limit + times_.compile_grace) {
      return ended(
          SlotOutcome::kBypassed, {},
          fmt::format("no process in the queue for a build slot has moved for {}",
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
  std::erase_if(pulses_, [&](const auto& each) {
    return now - each.second.looked > times_.no_heartbeat;
  });
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

/// The slot that the caller may try now: one that nobody before it takes.
std::optional<unsigned> Slots::next_slot(Wait& wait) {
  unsigned others = 0;
  bool is_any_quiet = false;
  for (auto at = wait.before.begin(); at != wait.before.end();) {
    if (!wait.place.is_taken(*at)) {
      pulses_.erase(at->number);
      at = wait.before.erase(at);
      wait.moved = Clock::now();
      continue;
    }
    const auto quiet = quiet_for(wait.place, *at);
    if (quiet < times_.no_pulse)
      others = std::max(others, at->slots);
    // Those behind a stopped one are watched together, not one after another.
    is_any_quiet = is_any_quiet || quiet >= times_.no_pulse / 2;
    if (others >= count_.get() && !is_any_quiet)
      return std::nullopt;
    ++at;
  }
  return free_slot(wait.place, others);
}

/// How long this process has seen no new pulse of that place.
Slots::Clock::duration Slots::quiet_for(const QueuePlace& queue, Ticket ticket) {
  const auto now = Clock::now();
  const auto value = queue.pulse_of(ticket);
  Pulse& seen =
      pulses_.try_emplace(ticket.number, Pulse{value, now, now}).first->second;
  if (seen.value != value)
    seen = {.value = value, .since = now, .looked = now};
  seen.looked = now;
  return now - seen.since;
}

/// The lowest free slot beyond the first `others`. Each ignored holder adds one at the
/// end. None while as many are held as may be now.
std::optional<unsigned> Slots::free_slot(const QueuePlace& queue, unsigned others) {
  unsigned end = count_.get();
  unsigned held = 0;
  std::optional<unsigned> free;
  for (unsigned slot = 0; slot < std::min(end, kMaxSlots); ++slot) {
    if (is_free(queue, slot)) {
      if (slot >= others && !free)
        free = slot;
    } else if (const auto holder = holders_.find(slot);
               holder != holders_.end() && holder->second.is_ignored) {
      ++end;
      others += others == 0 ? 0 : 1;  // they ignore it, too
    } else {
      ++held;
    }
  }
  return free && held > 0 && held >= room() ? std::nullopt : free;
}

/// To ask costs up to a millisecond, and who waits for room asks at each try.
unsigned Slots::room() {
  if (const auto now = Clock::now(); now >= ask_room_at_) {
    room_ = count_.now();
    ask_room_at_ = now + times_.longest_pause;
  }
  return room_;
}

}  // namespace kiln::cache
