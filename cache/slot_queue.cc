#include "cache/slot_queue.h"

#include <utility>

#include "cache/owned_range.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

// Behind the records of all slots. FORMAT.md, "Locks".
constexpr std::uint64_t kQueueOffset = std::uint64_t{1} << 20U;
constexpr std::uint64_t kQueueEnd = std::uint64_t{1} << 62U;

}  // namespace

Result<QueuePlace> QueuePlace::join(FileSystem& file_system,
                                    const std::filesystem::path& file) {
  auto ticket = static_cast<Ticket>(boot_time_now().count());
  for (;; ++ticket) {
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
}

std::optional<Ticket> QueuePlace::before(const std::set<Ticket>& skipped) const {
  Ticket from = 0;
  const auto find = [&](Ticket to) -> std::optional<Ticket> {
    const auto other = lock_.other(kQueueOffset + from, to - from);
    return other ? std::optional(other->offset - kQueueOffset) : std::nullopt;
  };
  for (auto skip = skipped.begin(); skip != skipped.end() && *skip < ticket_; ++skip) {
    if (const auto found = find(*skip))
      return found;
    from = *skip + 1;
  }
  return find(ticket_);
}

}  // namespace kiln::cache
