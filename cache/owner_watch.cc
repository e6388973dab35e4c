// Waiting for the owner of a range: when to give up, and how long to sleep.

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>

#include "cache/owned_range.h"
#include "util/units.h"

namespace kiln::cache {
namespace {

std::string text(std::chrono::nanoseconds duration) {
  return format_duration(
      std::chrono::duration_cast<std::chrono::milliseconds>(duration));
}

std::string silent(const OwnerRecord& owner, std::chrono::nanoseconds age) {
  return fmt::format("process {}, {}, has given no sign of life for {}", owner.pid,
                     to_string(owner.phase), text(age));
}

/// True if a record did not change between two reads: no sign of life.
bool is_unchanged(const std::optional<OwnerRecord>& a,
                  const std::optional<OwnerRecord>& b) {
  if (!a || !b)
    return !a && !b;
  return a->same_owner(*b) && a->heartbeat == b->heartbeat && a->phase == b->phase;
}

}  // namespace

std::optional<std::string> OwnerWatch::give_up(const std::optional<OwnerRecord>& seen) {
  const auto now = std::chrono::steady_clock::now();
  if (!last_change_ || !is_unchanged(seen, last_)) {
    last_ = seen;
    last_change_ = now;
  }
  const std::chrono::nanoseconds unchanged = now - *last_change_;
  // A holder writes its record at once, unless it was stopped before it could, or the
  // disk is full.
  if (!seen || seen->phase == Phase::kReleased) {
    if (unchanged < times_.no_record)
      return std::nullopt;
    return fmt::format("a process has held the lock for {} without a record of its own",
                       text(unchanged));
  }
  if (unchanged >= times_.no_heartbeat)
    return silent(*seen, unchanged);
  // No heartbeat since before this watch began. Wait for two beats all the same: the
  // record may be a dead owner's, and a new owner about to write its own.
  const std::chrono::nanoseconds age = boot_time_now() - seen->heartbeat;
  if (age >= times_.no_heartbeat && unchanged >= 2 * times_.heartbeat)
    return silent(*seen, age);
  // Both times come from the holder, so that its clock may differ from ours. What has
  // passed since its last sign of life is measured here: it may be stopped.
  const std::chrono::nanoseconds in_phase =
      seen->heartbeat - seen->phase_started + unchanged;
  if (seen->build_limit.count() > 0 &&
      in_phase > seen->build_limit + times_.compile_grace) {
    return fmt::format("process {} has been {} for {}, over its limit of {}", seen->pid,
                       to_string(seen->phase), text(in_phase), text(seen->build_limit));
  }
  return std::nullopt;
}

BackOff::BackOff(const LockTimes& times)
    : ceiling_(times.shortest_pause),
      shortest_(times.shortest_pause),
      longest_(std::max(times.longest_pause, times.shortest_pause)),
      random_(std::random_device{}()) {}

std::chrono::nanoseconds BackOff::next() {
  ceiling_ = std::min(2 * ceiling_, longest_);
  // A linear congruential step (Knuth, MMIX); jitter needs no better.
  random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
  const double fraction = static_cast<double>(random_ >> 11U) * 0x1p-53;
  const auto span = static_cast<double>((ceiling_ - shortest_).count());
  return shortest_ +
         std::chrono::nanoseconds(static_cast<std::int64_t>(fraction * span));
}

void stoppable_sleep(std::chrono::nanoseconds duration, const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any wake;
  wake.wait_for(lock, stop, duration, [] { return false; });
}

}  // namespace kiln::cache
