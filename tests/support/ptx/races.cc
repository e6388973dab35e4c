#include "tests/support/ptx/races.h"

#include <algorithm>
#include <utility>

namespace kiln::ptx {

void Races::watch(std::size_t bytes, unsigned warps) {
  cells_.resize((bytes + kCellBytes - 1) / kCellBytes);
  clocks_.assign(warps, Clock(warps, 0));
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
  return meetings_[warp].last[thread % kLanes][mark.thread % kLanes] > mark.step;
}

void Races::note(Cell& cell, const Mark& mark, Access access,
                 std::optional<Conflict>& found) const {
  const auto conflict = [&](const Mark& before, Access kind) {
    const bool are_atomic = before.is_atomic && access == Access::kAtomic;
    if (!found && !are_atomic && !is_before(before, mark.thread))
      found = {.before = kind, .statement = before.statement};
  };
  conflict(cell.write, Access::kWrite);
  if (access == Access::kRead) {
    Mark& slot = cell.reads[0].thread == mark.thread || cell.reads[0].clock == 0 ||
                         is_before(cell.reads[0], mark.thread)
                     ? cell.reads[0]
                     : cell.reads[1];
    slot = mark;
    return;
  }
  for (const Mark& read : cell.reads) conflict(read, Access::kRead);
  cell.write = mark;
  cell.reads = {};
}

// A cell is split into its bytes by the first access that does not cover it whole.
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
  const std::uint64_t end = at + bytes;
  for (std::uint64_t index = at / kCellBytes; index * kCellBytes < end; ++index) {
    Cell& cell = cells_[index];
    const std::uint64_t first = std::max(at, index * kCellBytes) - index * kCellBytes;
    const std::uint64_t last = std::min(end - index * kCellBytes, kCellBytes);
    if (!cell.is_split && last - first == kCellBytes) {
      note(cell, mark, access, found);
      continue;
    }
    auto& parts = split_[index];
    if (!cell.is_split)
      parts.fill(cell);
    cell.is_split = true;
    for (std::uint64_t byte = first; byte < last; ++byte)
      note(parts[byte], mark, access, found);
  }
  return found;
}

void Races::raise(Clock& clock, const Clock& by) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], by[i]);
}

void Races::release(std::uint64_t barrier, unsigned thread) {
  const unsigned warp = thread / kLanes;
  Arrivals& arrivals = arrivals_[barrier].current;
  arrivals.known.resize(clocks_.size());
  raise(arrivals.known, clocks_[warp]);
  ++clocks_[warp][warp];
  arrivals.steps[warp][thread % kLanes] = ++meetings_[warp].step;
}

void Races::complete(std::uint64_t barrier) {
  OfPhases& phases = arrivals_[barrier];
  phases.completed = std::exchange(phases.current, {});
}

void Races::acquire(std::uint64_t barrier, unsigned thread) {
  const unsigned warp = thread / kLanes;
  const Arrivals& arrivals = arrivals_[barrier].completed;
  if (arrivals.known.empty())
    return;
  raise(clocks_[warp], arrivals.known);
  const auto steps = arrivals.steps.find(warp);
  if (steps == arrivals.steps.end())
    return;
  auto& last = meetings_[warp].last[thread % kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane)
    last[lane] = std::max(last[lane], steps->second[lane]);
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
