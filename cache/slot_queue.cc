#include "cache/slot_queue.h"

#include <algorithm>
#include <utility>

#include "cache/owned_range.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

// Behind the records of all slots. FORMAT.md, "Locks".
constexpr std::uint64_t kQueueOffset = std::uint64_t{1} << 20U;
constexpr std::uint64_t kQueueEnd = std::uint64_t{1} << 62U;
constexpr std::uint64_t kClaimOffset = kQueueEnd;
// More places than a queue has: some 0.1 s of attempts.
constexpr int kMostTries = 10'000;

}  // namespace

Result<QueuePlace> QueuePlace::join(FileSystem& file_system,
                                    const std::filesystem::path& file) {
  auto ticket = static_cast<Ticket>(boot_time_now().count());
  for (int i = 0; i < kMostTries; ++i, ++ticket) {
    auto lock =
        KILN_TRY(FileLock::try_lock({&file_system, file, kQueueOffset + ticket, 1}));
    if (!lock)
      continue;  // two asked in the same nanosecond: one of them takes the next byte
    // Another container's clock may be ahead: its places are before this one, too.
    const std::uint64_t next = kQueueOffset + ticket + 1;
    const auto behind = lock->other(next, kQueueEnd - next);
    if (!behind)
      return QueuePlace(*std::move(lock), ticket);
    ticket = behind->offset - kQueueOffset;
  }
  return fail(ErrorCode::kUnavailable,
              file.native() +
                  " has no place left in the queue for build slots: who "
                  "has locked it?");
}

std::vector<Ticket> QueuePlace::before() const {
  std::vector<Ticket> found;
  // The system names any lock in a range, not the first one.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges{
      {kQueueOffset, kQueueOffset + ticket_}};
  while (!ranges.empty()) {
    const auto [from, to] = ranges.back();
    ranges.pop_back();
    const auto other = lock_.other(from, to - from);
    if (!other)
      continue;
    // Only a foreign program locks more than one byte.
    const std::uint64_t begin = std::max(from, other->offset);
    const std::uint64_t end = other->offset + other->bytes;
    found.push_back(begin - kQueueOffset);
    ranges.emplace_back(from, begin);
    if (other->bytes > 0 && end < to)
      ranges.emplace_back(end, to);
  }
  std::ranges::sort(found);
  return found;
}

bool QueuePlace::is_taken(Ticket ticket) const {
  return !is_free(kQueueOffset + ticket, 1);
}

void QueuePlace::claim(FileSystem& file_system, const std::filesystem::path& file) {
  auto claim = FileLock::try_lock({&file_system, file, kClaimOffset + ticket_, 1});
  if (claim && *claim)
    claim_ = **std::move(claim);
}

bool QueuePlace::is_claimed(Ticket ticket) const {
  return !is_free(kClaimOffset + ticket, 1);
}

}  // namespace kiln::cache
