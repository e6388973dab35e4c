// PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy": cp.async
// without bulk. What is copied lands when its thread waits for it, as late as it may;
// until then nobody may look at the place.

#include "tests/support/ptx/operations/copies.h"

#include <algorithm>
#include <array>

#include "tests/support/ptx/decoder.h"
#include "tests/support/ptx/memory.h"
#include "tests/support/ptx/operations/mbarrier.h"

namespace kiln::ptx {
namespace {

void land(Block& block, const PendingCopy& copy) {
  std::byte* const to = block.shared.data() + copy.to;
  std::fill_n(to, copy.bytes, std::byte{0});
  std::copy_n(copy.from, copy.source_bytes, to);
  if (!block.shared_set.empty())
    std::fill_n(block.shared_set.begin() + copy.to, copy.bytes, std::uint8_t{1});
}

/// Where so many bytes of each lane are read, which are aligned as all would be.
Reach reach_parts(const Lanes& lanes, const Instruction& instruction,
                  const Operand& base, const std::array<unsigned, kLanes>& sizes,
                  unsigned whole) {
  const auto is_whole = [&](unsigned lane) { return sizes[lane] == whole; };
  std::uint32_t parts = 0;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    parts |= std::uint32_t{!is_whole(lane)} << lane;
  });
  Lanes some = lanes;
  some.mask = lanes.mask & ~parts;
  Reach reached;
  if (some.mask != 0)
    reached = reach(some, instruction, base, whole, Access::kRead);
  for_each_lane(parts, [&](unsigned lane) {
    reached.at[lane] = reach_one(lanes, instruction,
                                 {.lane = lane,
                                  .space = instruction.space,
                                  .at = register_bits(lanes, base, lane) +
                                        static_cast<std::uint64_t>(instruction.offset),
                                  .bytes = sizes[lane],
                                  .access = Access::kRead,
                                  .alignment = whole});
  });
  return reached;
}

// Operands: to, from, the size of the source (or dropped); mode: the size; is_other: a
// predicate that says to copy nothing.
void copy(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const unsigned bytes = instruction.mode;
  Instruction part{.space = Space::kShared};
  part.statement = instruction.statement;
  part.offset = instruction.to_offset;
  Block& block = *lanes.block;
  const Reach to = reach(lanes, part, operands[0], bytes, Access::kWrite);
  std::array<unsigned, kLanes> sizes;
  sizes.fill(bytes);
  std::uint32_t reading = 0;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    if (!operands[2].is_dropped())
      sizes[lane] = instruction.is_other
                        ? (lanes.predicate(operands[2]) >> lane & 1U) != 0 ? 0 : bytes
                        : lanes.at<std::uint32_t>(operands[2])[lane];
    if (sizes[lane] > bytes)
      throw Fault{kIllegalInstruction,
                  "a copy of more bytes than it has room for: " +
                      describe(block.grid.program, *instruction.statement)};
    reading |= std::uint32_t{sizes[lane] != 0} << lane;
  });
  Reach from;
  if (reading != 0) {
    Lanes some = lanes;
    some.mask = reading;
    part.space = Space::kGlobal;
    part.offset = instruction.offset;
    from = reach_parts(some, part, operands[1], sizes, bytes);
  }
  for_each_lane(lanes.mask, [&](unsigned lane) {
    const PendingCopy pending{
        .lane = lane,
        .group = lanes.warp->groups[lane],
        .to = static_cast<std::uint32_t>(to.at[lane] - block.shared.data()),
        .from = from.at[lane],
        .bytes = bytes,
        .source_bytes = sizes[lane]};
    if (!block.grid.schedule.delays_copies) {
      land(block, pending);
      return;
    }
    std::fill_n(to.at[lane], bytes, std::byte{0xff});
    if (!block.shared_set.empty())
      std::fill_n(block.shared_set.begin() + pending.to, bytes, std::uint8_t{0});
    lanes.warp->copies.push_back(pending);
  });
}

void commit(Lanes& lanes, const Instruction&) {
  for_each_lane(lanes.mask, [&](unsigned lane) { ++lanes.warp->groups[lane]; });
}

// All groups but the last so many; offset: how many, negative for all of them and those
// that are not committed.
void wait(Lanes& lanes, const Instruction& instruction) {
  auto& copies = lanes.warp->copies;
  const auto& groups = lanes.warp->groups;
  const auto is_due = [&](const PendingCopy& pending) {
    return (lanes.mask >> pending.lane & 1U) != 0 &&
           (instruction.offset < 0 ||
            std::int64_t{pending.group} + instruction.offset < groups[pending.lane]);
  };
  std::erase_if(copies, [&](const PendingCopy& pending) {
    if (!is_due(pending))
      return false;
    land(*lanes.block, pending);
    return true;
  });
  settle(*lanes.block, [&](const Tracked& each) {
    return each.warp == lanes.warp->index() &&
           std::all_of(each.copies.begin(), each.copies.end(), is_due);
  });
}

void select_copy(Decoder& decoder) {
  auto& made = decoder.made;
  if (!decoder.take("async"))
    decoder.refuse("only cp.async is run here");
  for (const std::string_view later : {"bulk", "reduce"}) {
    if (decoder.take(later))
      decoder.refuse("bulk copies are not run here");
  }
  if (decoder.take("mbarrier")) {
    select_arrival_after_copies(decoder);
    return;
  }
  if (decoder.take("commit_group")) {
    made.run = &commit;
    return;
  }
  if (decoder.take("wait_all")) {
    made.offset = -1;
    made.run = &wait;
    return;
  }
  if (decoder.take("wait_group")) {
    made.offset = static_cast<std::int64_t>(decoder.integer(decoder.argument(0)));
    made.run = &wait;
    return;
  }
  const auto& modifiers = decoder.statement().modifiers;
  const bool has_policy = std::find(modifiers.begin(), modifiers.end(),
                                    "L2::cache_hint") != modifiers.end();
  decoder.take_hints();
  if (!decoder.take("shared") || !decoder.take("global"))
    decoder.refuse("its spaces are not known");
  const std::uint64_t bytes = decoder.integer(decoder.argument(2));
  if (bytes != 4 && bytes != 8 && bytes != 16)
    decoder.refuse("a copy is of 4, 8 or 16 bytes");
  made.mode = static_cast<std::uint8_t>(bytes);
  decoder.address(decoder.argument(0), Space::kShared);
  made.to_offset = made.offset;
  decoder.address(decoder.argument(1), Space::kGlobal);
  made.operands.emplace_back();
  if (decoder.count() > (has_policy ? 4U : 3U)) {
    const auto& last = decoder.argument(3);
    made.is_other = decoder.is_predicate(last);
    made.operands[2] = decoder.source(last, made.is_other ? kPred : kU32);
  }
  made.run = &copy;
}

}  // namespace

void track(const Lanes& lanes, unsigned lane, std::byte* barrier) {
  Tracked made{.warp = lanes.warp->index(), .lane = lane, .barrier = barrier};
  std::erase_if(lanes.warp->copies, [&](const PendingCopy& pending) {
    if (pending.lane == lane)
      made.copies.push_back(pending);
    return pending.lane == lane;
  });
  lanes.block->tracked.push_back(std::move(made));
}

void settle(Block& block, const std::function<bool(const Tracked&)>& is_due) {
  std::erase_if(block.tracked, [&](const Tracked& each) {
    if (!is_due(each))
      return false;
    for (const PendingCopy& pending : each.copies) land(block, pending);
    arrive_for(block, each);
    return true;
  });
}

std::span<const Operation> copy_operations() {
  static constexpr auto kAll = std::to_array<Operation>({{"cp", &select_copy}});
  return kAll;
}

}  // namespace kiln::ptx
