#include "cache/slot_queue.h"

#include <algorithm>
#include <utility>

#include "cache/owned_range.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

// FORMAT.md, "Locks". Behind the records of all slots are the places, a window each,
// and behind these the pulses, a window for that of each place.
constexpr std::uint64_t kQueueOffset = std::uint64_t{1} << 20U;
constexpr std::uint64_t kQueueEnd = std::uint64_t{1} << 62U;
constexpr std::uint64_t kWindow = QueuePlace::kMostSlots;
// More places than a queue has: some 0.1 s of attempts.
constexpr int kMostTries = 10'000;

std::uint64_t window_of(std::uint64_t number) {
  return number / kWindow * kWindow;
}

}  // namespace

Result<QueuePlace> QueuePlace::join(FileSystem& file_system,
                                    const std::filesystem::path& file, unsigned slots) {
  auto number = window_of(static_cast<std::uint64_t>(boot_time_now().count()));
  for (int i = 0; i < kMostTries; ++i, number += kWindow) {
    FileLock::Range range{&file_system, file, kQueueOffset + number,
                          std::clamp(slots, 1U, kMostSlots)};
    auto lock = KILN_TRY(FileLock::try_lock(range));
    if (!lock)
      continue;  // two asked at once: one of them takes the next window
    // Another container's clock may be ahead: its places are before this one, too.
    const std::uint64_t next = kQueueOffset + number + kWindow;
    const auto behind = lock->other(next, kQueueEnd - next);
    if (!behind)
      return QueuePlace(*std::move(lock), std::move(range), number);
    number = window_of(behind->offset - kQueueOffset);
  }
  return fail(ErrorCode::kUnavailable,
              file.native() +
                  " has no place left in the queue for build slots: has another "
                  "program locked this file?");
}

std::vector<Ticket> QueuePlace::before() const {
  std::vector<Ticket> found;
  // The system names any lock in a range, not the first one.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges{
      {kQueueOffset, kQueueOffset + number_}};
  while (!ranges.empty()) {
    const auto [from, to] = ranges.back();
    ranges.pop_back();
    const auto other = lock_.other(from, to - from);
    if (!other)
      continue;
    // Only a foreign program locks more than a window.
    const std::uint64_t begin = std::max(from, other->offset);
    const std::uint64_t end = other->offset + other->bytes;
    const auto slots = std::min<std::uint64_t>(other->bytes, kMostSlots);
    found.push_back({begin - kQueueOffset, static_cast<unsigned>(slots)});
    ranges.emplace_back(from, begin);
    if (other->bytes > 0 && end < to)
      ranges.emplace_back(end, to);
  }
  std::ranges::sort(found, {}, &Ticket::number);
  return found;
}

bool QueuePlace::is_taken(Ticket ticket) const {
  return !is_free(kQueueOffset + ticket.number, 1);
}

void QueuePlace::pulse() {
  const std::uint64_t offset = kQueueEnd + number_ + pulses_++ % kWindow;
  auto next = FileLock::try_lock({range_.file_system, range_.file, offset, 1});
  if (next && *next)
    pulse_ = **std::move(next);
}

std::optional<std::uint64_t> QueuePlace::pulse_of(Ticket ticket) const {
  const auto pulse = lock_.other(kQueueEnd + window_of(ticket.number), kWindow);
  return pulse ? std::optional(pulse->offset) : std::nullopt;
}

}  // namespace kiln::cache
