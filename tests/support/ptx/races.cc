#include "tests/support/ptx/races.h"

#include <algorithm>

namespace kiln::ptx {
namespace {

constexpr std::size_t kCellBytes = 4;

}  // namespace

void Races::watch(std::size_t bytes, unsigned warps) {
  cells_.resize((bytes + kCellBytes - 1) / kCellBytes);
  clocks_.assign(warps, std::vector<std::uint32_t>(warps, 0));
  for (unsigned warp = 0; warp < warps; ++warp) clocks_[warp][warp] = 1;
  meetings_.resize(warps);
}

bool Races::is_before(const Mark& mark, unsigned thread) const {
  if (mark.clock == 0 || mark.thread == thread)
    return true;
  const unsigned warp = thread / kLanes;
  const unsigned other = mark.thread / kLanes;
  if (warp != other)
    return clocks_[warp][other] >= mark.clock;
  // The warp's own clock moves on at barriers of the block.
  return clocks_[warp][warp] > mark.clock ||
         meetings_[warp].last[thread % kLanes][mark.thread % kLanes] > mark.step;
}

// Bytes of one cell that different threads write, as two halves, are no race: a cell is
// told from its neighbours only where an access covers it whole, so narrow accesses are
// watched by their first byte's cell and may miss a race, never make one up.
std::optional<Races::Conflict> Races::note(unsigned thread, std::uint64_t at,
                                           std::size_t bytes, Access access,
                                           const syntax::Statement* statement) {
  std::optional<Conflict> found;
  const unsigned warp = thread / kLanes;
  const Mark mark{.thread = thread,
                  .clock = clocks_[warp][warp],
                  .step = meetings_[warp].step,
                  .is_atomic = access == Access::kAtomic,
                  .statement = statement};
  if (bytes < kCellBytes)
    return found;
  for (std::uint64_t each = at; each < at + bytes; each += kCellBytes) {
    Cell& cell = cells_[each / kCellBytes];
    const auto conflict = [&](const Mark& before, Access kind) {
      const bool are_atomic = before.is_atomic && access == Access::kAtomic;
      if (!found && !are_atomic && !is_before(before, thread))
        found = {
            .before = kind, .thread = before.thread, .statement = before.statement};
    };
    conflict(cell.write, Access::kWrite);
    if (access == Access::kRead) {
      Mark& slot = cell.reads[0].thread == thread || cell.reads[0].clock == 0 ||
                           is_before(cell.reads[0], thread)
                       ? cell.reads[0]
                       : cell.reads[1];
      slot = mark;
      continue;
    }
    for (const Mark& read : cell.reads) conflict(read, Access::kRead);
    cell.write = mark;
    cell.reads = {};
  }
  return found;
}

void Races::join_warps(std::uint32_t warps) {
  std::vector<std::uint32_t> joined(clocks_.size(), 0);
  const auto for_each_warp = [&](const auto& visit) {
    for (std::size_t warp = 0; warp < clocks_.size(); ++warp) {
      if ((warps >> warp & 1U) != 0)
        visit(clocks_[warp], warp);
    }
  };
  for_each_warp([&](auto& clock, std::size_t) {
    for (std::size_t i = 0; i < joined.size(); ++i)
      joined[i] = std::max(joined[i], clock[i]);
  });
  for_each_warp([&](auto& clock, std::size_t warp) {
    clock = joined;
    ++clock[warp];
  });
}

void Races::join_lanes(unsigned warp, std::uint32_t lanes) {
  Meetings& met = meetings_[warp];
  ++met.step;
  for (unsigned i = 0; i < kLanes; ++i) {
    for (unsigned j = 0; j < kLanes && (lanes >> i & 1U) != 0; ++j) {
      if ((lanes >> j & 1U) != 0)
        met.last[i][j] = met.step;
    }
  }
}

}  // namespace kiln::ptx
