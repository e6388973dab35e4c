#include <fmt/format.h>

#include <algorithm>

#include "tests/support/ptx/machine.h"

namespace kiln::ptx {
namespace {

unsigned volume(const Extent& extent) {
  return extent[0] * extent[1] * extent[2];
}

std::uint64_t linear(const Extent& at, const Extent& extent) {
  return at[0] + extent[0] * (at[1] + std::uint64_t{extent[1]} * at[2]);
}

}  // namespace

Block::Block(Grid& of, Extent index)
    : grid(of),
      shared(of.shared_bytes, std::byte{0xff}),
      random(of.schedule.seed * 7919 + linear(index, of.launch.grid)),
      index_(index),
      threads_(volume(of.launch.block)) {
  if (grid.checks.unset)
    shared_set.assign(shared.size(), 0);
  const unsigned count = (threads_ + kLanes - 1) / kLanes;
  if (grid.checks.races)
    races.watch(shared.size(), count);
  for (unsigned i = 0; i < count; ++i)
    warps.push_back(std::make_unique<Warp>(*this, i, threads_ - i * kLanes));
}

Extent Block::thread(unsigned number) const {
  const Extent& block = grid.launch.block;
  return {number % block[0], number / block[0] % block[1],
          number / block[0] / block[1]};
}

std::string Block::describe_thread(const Warp& warp, unsigned lane) const {
  const Extent at = thread(warp.first_thread() + lane);
  return fmt::format("thread ({}, {}, {}) of block ({}, {}, {})", at[0], at[1], at[2],
                     index_[0], index_[1], index_[2]);
}

void Block::note(const std::string& what) {
  ++grid.report.notes[what];
}

bool Block::run(std::uint64_t quantum) {
  bool has_run = false;
  const std::size_t first = grid.schedule.seed == 0 ? 0 : random.below(warps.size());
  for (std::size_t i = 0; i < warps.size(); ++i) {
    Warp& warp = *warps[(first + i) % warps.size()];
    const std::uint64_t turn =
        grid.schedule.seed == 0
            ? quantum
            : std::min<std::uint64_t>(quantum, 1 + random.below(600));
    has_run = warp.run(turn) || has_run;
  }
  return has_run;
}

bool Block::is_done() const {
  return std::all_of(warps.begin(), warps.end(),
                     [](const auto& warp) { return warp->is_done(); });
}

std::string Block::describe_waits() const {
  std::string text;
  for (const auto& warp : warps) {
    const std::string waits = warp->describe_waits();
    if (!waits.empty())
      text += (text.empty() ? "" : "; ") + waits;
  }
  return fmt::format("block ({}, {}, {}): {}", index_[0], index_[1], index_[2], text);
}

void Block::arrive(unsigned barrier, unsigned threads, unsigned expected) {
  Barrier& at = barriers[barrier];
  const auto counted = [&](unsigned each) { return each == 0 ? threads_ : each; };
  if (at.arrived != 0 && counted(at.expected) != counted(expected))
    throw Fault{kIllegalInstruction,
                fmt::format("barrier {} is waited for with {} threads and with {}",
                            barrier, at.expected, expected)};
  at.arrived += threads;
  at.expected = expected;
  complete_if_due(barrier);
}

// A thread that has left counts as one that arrived, where all are waited for.
void Block::complete_if_due(unsigned barrier) {
  Barrier& at = barriers[barrier];
  if (at.arrived == 0)
    return;
  unsigned due = at.expected;
  if (due == 0) {
    for (const auto& warp : warps)
      due += static_cast<unsigned>(std::popcount(warp->alive()));
  }
  if (at.arrived < due)
    return;
  if (races.is_watching())
    races.complete(race_key(barrier));
  at = {.result_count = at.count, .result_all = at.all, .result_any = at.any};
  for (const auto& warp : warps) warp->release(barrier);
}

void Block::thread_left() {
  for (unsigned barrier = 0; barrier < barriers.size(); ++barrier)
    complete_if_due(barrier);
}

const Stretch* Grid::find(std::uint64_t address) {
  for (const Stretch& each : known) {
    if (address >= each.begin && address < each.end)
      return &each;
  }
  const auto block = heap_sizes.upper_bound(address);
  std::optional<Stretch> found;
  if (block != heap_sizes.begin() &&
      address - std::prev(block)->first < std::prev(block)->second)
    found = Stretch{.begin = std::prev(block)->first,
                    .end = std::prev(block)->first + std::prev(block)->second};
  else
    found = memory.find(address);
  if (!found)
    return nullptr;
  Stretch& slot = known[next_known++ % known.size()];
  slot = *found;
  return &slot;
}

std::string describe(const Program& program, const syntax::Statement& statement) {
  std::string text;
  bool is_blank = false;
  for (const char each : statement.text) {
    const bool is_space = each == ' ' || each == '\t' || each == '\n' || each == '\r';
    if (is_space && !is_blank && !text.empty())
      text += ' ';
    else if (!is_space)
      text += each;
    is_blank = is_space;
  }
  if (statement.line != 0 && statement.file < program.module.files.size())
    text +=
        fmt::format(" ({}:{})", program.module.files[statement.file], statement.line);
  return text;
}

}  // namespace kiln::ptx
