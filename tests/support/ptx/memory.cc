#include "tests/support/ptx/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace kiln::ptx {
namespace {

std::string_view name_of(Space space) {
  switch (space) {
    case Space::kShared:
      return "shared";
    case Space::kLocal:
      return "local";
    case Space::kParam:
      return "parameter";
    case Space::kConst:
      return "constant";
    default:
      return "global";
  }
}

std::string_view name_of(Access access) {
  return access == Access::kRead    ? "read"
         : access == Access::kWrite ? "write"
                                    : "atomic";
}

[[noreturn]] void fail(const Lanes& lanes, const Instruction& instruction,
                       unsigned lane, Space space, std::uint64_t address,
                       std::size_t bytes, Access access, int result) {
  const bool is_aligned = result != kMisalignedAddress;
  std::string why = fmt::format(
      "invalid {} {} of {} bytes at {:#x} by {}: {}; {}", name_of(space),
      name_of(access), bytes, address, lanes.block->describe_thread(*lanes.warp, lane),
      !is_aligned ? "the address is misaligned"
      : space == Space::kShared
          ? fmt::format("the block has {} bytes", lanes.block->shared.size())
          : "out of bounds",
      describe(lanes.block->grid.program, *instruction.statement));
  if (is_aligned && space == Space::kGlobal)
    why += "; " + lanes.block->grid.memory.describe(address);
  throw Fault{result, std::move(why)};
}

Space space_of(std::uint64_t address, std::uint64_t& offset) {
  offset = address & ~kWindowMask;
  switch (address & kWindowMask) {
    case kSharedWindow:
      return Space::kShared;
    case kLocalWindow:
      return Space::kLocal;
    case kParamWindow:
      return Space::kParam;
    default:
      offset = address;
      return Space::kGlobal;
  }
}

void check_set(const Lanes& lanes, const Instruction& instruction, std::uint8_t* set,
               std::size_t bytes, Access access, Space space) {
  if (access != Access::kRead) {
    std::fill_n(set, bytes, std::uint8_t{1});
    return;
  }
  if (!std::all_of(set, set + bytes, [](std::uint8_t each) { return each != 0; }))
    lanes.block->note(
        fmt::format("read of {} memory that was never written: {}", name_of(space),
                    describe(lanes.block->grid.program, *instruction.statement)));
}

void check_race(const Lanes& lanes, const Instruction& instruction, unsigned lane,
                std::uint64_t at, std::size_t bytes, Access access) {
  Block& block = *lanes.block;
  const auto conflict = block.races.note(lanes.warp->first_thread() + lane, at, bytes,
                                         access, instruction.statement);
  if (conflict)
    block.note(fmt::format(
        "race in shared memory, no barrier between the {} of \"{}\" "
        "and the {} of \"{}\"",
        name_of(conflict->before), describe(block.grid.program, *conflict->statement),
        name_of(access), describe(block.grid.program, *instruction.statement)));
}

}  // namespace

std::byte* reach_one(const Lanes& lanes, const Instruction& instruction, unsigned lane,
                     Space space, std::uint64_t address, std::size_t bytes,
                     Access access) {
  Block& block = *lanes.block;
  std::uint64_t at = address;
  if (space == Space::kGlobal)
    space = space_of(address, at);
  const auto refuse = [&](int result) {
    fail(lanes, instruction, lane, space, at, bytes, access, result);
  };
  const std::size_t alignment = std::min<std::size_t>(bytes, 16);
  if (at % alignment != 0)
    refuse(kMisalignedAddress);
  switch (space) {
    case Space::kShared:
      if (at > block.shared.size() || bytes > block.shared.size() - at)
        refuse(kIllegalAddress);
      if (!block.shared_set.empty())
        check_set(lanes, instruction, block.shared_set.data() + at, bytes, access,
                  space);
      if (block.races.is_watching())
        check_race(lanes, instruction, lane, at, bytes, access);
      return block.shared.data() + at;
    case Space::kLocal: {
      std::byte* const local = lanes.warp->local(lane, at, bytes);
      if (local == nullptr)
        refuse(kIllegalAddress);
      return local;
    }
    case Space::kParam: {
      const auto parameters = block.grid.launch.parameters;
      if (access != Access::kRead || at > parameters.size() ||
          bytes > parameters.size() - at)
        refuse(kIllegalAddress);
      // Read, never written. NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
      return const_cast<std::byte*>(parameters.data() + at);
    }
    default: {
      const Stretch* const stretch = block.grid.find(at);
      if (stretch == nullptr || bytes > stretch->end - at ||
          (stretch->is_read_only && access != Access::kRead))
        refuse(kIllegalAddress);
      if (stretch->set != nullptr && block.grid.checks.unset)
        check_set(lanes, instruction, stretch->set + (at - stretch->begin), bytes,
                  access, space);
      // An address of this process. NOLINTNEXTLINE(performance-no-int-to-ptr)
      return reinterpret_cast<std::byte*>(at);
    }
  }
}

namespace {

// Shared memory has 32 banks of 4 bytes. 8 bytes a lane go by half-warps, 16 by
// quarters; lanes of one word share it.
void count_wavefronts(Traffic& traffic,
                      const std::array<std::uint64_t, kLanes>& address,
                      std::uint32_t mask, std::size_t bytes) {
  const unsigned group = bytes >= 16 ? 8 : bytes == 8 ? 16 : kLanes;
  for (unsigned start = 0; start < kLanes; start += group) {
    std::array<std::set<std::uint64_t>, 32> words;
    std::set<std::uint64_t> all;
    for (unsigned lane = start; lane < start + group; ++lane) {
      if ((mask >> lane & 1U) == 0)
        continue;
      for (std::uint64_t word = address[lane] / 4;
           word <= (address[lane] + bytes - 1) / 4; ++word) {
        words[word % 32].insert(word);
        all.insert(word);
      }
    }
    std::size_t most = 0;
    for (const auto& bank : words) most = std::max(most, bank.size());
    traffic.wavefronts += most;
    traffic.least_wavefronts += (all.size() + 31) / 32;
  }
}

void count_sectors(Traffic& traffic, const std::array<std::uint64_t, kLanes>& address,
                   std::uint32_t mask, std::size_t bytes) {
  std::set<std::uint64_t> sectors;
  std::set<std::uint64_t> touched;
  for_each_lane(mask, [&](unsigned lane) {
    sectors.insert(address[lane] / 32);
    sectors.insert((address[lane] + bytes - 1) / 32);
    touched.insert(address[lane]);
  });
  traffic.sectors += sectors.size();
  traffic.least_sectors += (touched.size() * bytes + 31) / 32;
}

void count_traffic(const Lanes& lanes, const Instruction& instruction, Space space,
                   const std::array<std::uint64_t, kLanes>& address,
                   std::size_t bytes) {
  Grid& grid = lanes.block->grid;
  Traffic& traffic =
      grid.report.traffic[describe(grid.program, *instruction.statement)];
  ++traffic.accesses;
  if (space == Space::kShared)
    count_wavefronts(traffic, address, lanes.mask, bytes);
  else
    count_sectors(traffic, address, lanes.mask, bytes);
}

}  // namespace

Reach reach(const Lanes& lanes, const Instruction& instruction, const Operand& base,
            std::size_t bytes, Access access) {
  std::array<std::uint64_t, kLanes> address;
  const auto offset = static_cast<std::uint64_t>(instruction.offset);
  if (base.bytes == 4) {
    const auto* const from = lanes.at<std::uint32_t>(base);
    for (unsigned lane = 0; lane < kLanes; ++lane)
      address[lane] = static_cast<std::uint32_t>(from[lane] + offset);
  } else {
    const auto* const from = lanes.at<std::uint64_t>(base);
    for (unsigned lane = 0; lane < kLanes; ++lane) address[lane] = from[lane] + offset;
  }
  Block& block = *lanes.block;
  const Checks& checks = block.grid.checks;
  Space space = instruction.space;
  std::uint64_t low = UINT64_MAX;
  std::uint64_t high = 0;
  std::uint64_t together = 0;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    low = std::min(low, address[lane]);
    high = std::max(high, address[lane]);
    together |= address[lane];
  });
  // An address of a window, given to an instruction of its space, is one of it as well.
  if (space == Space::kGlobal && (low & kWindowMask) != 0 &&
      (low & kWindowMask) == (high & kWindowMask) &&
      (low & kWindowMask) == kSharedWindow) {
    space = Space::kShared;
    for (auto& each : address) each &= ~kWindowMask;
    low &= ~kWindowMask;
    high &= ~kWindowMask;
  }
  Reach reached;
  if (checks.conflicts && (space == Space::kShared || space == Space::kGlobal))
    count_traffic(lanes, instruction, space, address, bytes);
  const bool is_aligned = (together & (std::min<std::size_t>(bytes, 16) - 1)) == 0;
  // All lanes in one piece of memory, and nothing else to look at.
  if (is_aligned && space == Space::kShared && !checks.unset && !checks.races &&
      high + bytes <= block.shared.size()) {
    for_each_lane(lanes.mask, [&](unsigned lane) {
      reached.at[lane] = block.shared.data() + address[lane];
    });
    return reached;
  }
  if (is_aligned && space == Space::kGlobal && !checks.unset &&
      (low & kWindowMask) == 0) {
    const Stretch* const stretch = block.grid.find(low);
    if (stretch != nullptr && high + bytes <= stretch->end &&
        (!stretch->is_read_only || access == Access::kRead)) {
      for (unsigned lane = 0; lane < kLanes; ++lane)
        // Addresses of this process. NOLINTNEXTLINE(performance-no-int-to-ptr)
        reached.at[lane] = reinterpret_cast<std::byte*>(address[lane]);
      return reached;
    }
  }
  for (std::uint32_t left = lanes.mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(left));
    reached.at[lane] =
        reach_one(lanes, instruction, lane, space, address[lane], bytes, access);
  }
  return reached;
}

}  // namespace kiln::ptx
