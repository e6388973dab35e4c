#include "tests/support/ptx/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace kiln::ptx {
namespace {

constexpr std::size_t kWidestAccess = 32;  // v8.b32, v4.b64

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
                       const Touch& touch, int result) {
  const bool is_aligned = result != kMisalignedAddress;
  std::string why = fmt::format(
      "invalid {} {} of {} bytes at {:#x} by {}: {}; {}", name_of(touch.space),
      name_of(touch.access), touch.bytes, touch.at,
      lanes.block->describe_thread(*lanes.warp, touch.lane),
      !is_aligned ? "the address is misaligned"
      : touch.space == Space::kShared
          ? fmt::format("the block has {} bytes", lanes.block->shared.size())
          : "out of bounds",
      describe(lanes.block->grid.program, *instruction.statement));
  if (is_aligned && touch.space == Space::kGlobal)
    why += "; " + lanes.block->grid.memory.describe(touch.at);
  throw Fault{result, std::move(why)};
}

/// Of a generic address, the space and the place in it.
void resolve(Touch& touch) {
  const std::uint64_t window = touch.at & kWindowMask;
  touch.space = window == kSharedWindow  ? Space::kShared
                : window == kLocalWindow ? Space::kLocal
                : window == kParamWindow ? Space::kParam
                                         : Space::kGlobal;
  if (touch.space != Space::kGlobal)
    touch.at &= ~kWindowMask;
}

void check_set(const Lanes& lanes, const Instruction& instruction, const Touch& touch,
               std::uint8_t* set) {
  const bool is_unset =
      touch.access != Access::kWrite &&
      std::any_of(set, set + touch.bytes, [](std::uint8_t each) { return each == 0; });
  if (touch.access != Access::kRead)
    std::fill_n(set, touch.bytes, std::uint8_t{1});
  if (is_unset)
    lanes.block->note(fmt::format(
        "read of {} memory that was never written: {}", name_of(touch.space),
        describe(lanes.block->grid.program, *instruction.statement)));
}

void check_race(const Lanes& lanes, const Instruction& instruction,
                const Touch& touch) {
  Block& block = *lanes.block;
  const auto conflict =
      block.races.note(lanes.warp->first_thread() + touch.lane, touch.at, touch.bytes,
                       touch.access, instruction.statement);
  if (conflict)
    block.note(fmt::format(
        "race in shared memory, no barrier between the {} of \"{}\" "
        "and the {} of \"{}\"",
        name_of(conflict->before), describe(block.grid.program, *conflict->statement),
        name_of(touch.access), describe(block.grid.program, *instruction.statement)));
}

/// Where it lies in this process; null where it is no memory of its space.
std::byte* find(const Lanes& lanes, const Instruction& instruction,
                const Touch& touch) {
  Block& block = *lanes.block;
  const auto is_within = [&](std::size_t size) {
    return touch.at <= size && touch.bytes <= size - touch.at;
  };
  if (touch.space == Space::kShared) {
    if (!is_within(block.shared.size()))
      return nullptr;
    if (!block.shared_set.empty())
      check_set(lanes, instruction, touch, block.shared_set.data() + touch.at);
    if (block.races.is_watching())
      check_race(lanes, instruction, touch);
    return block.shared.data() + touch.at;
  }
  if (touch.space == Space::kLocal)
    return lanes.warp->local(touch.lane, touch.at, touch.bytes);
  if (touch.space == Space::kParam) {
    const auto parameters = block.grid.launch.parameters;
    if (touch.access != Access::kRead || !is_within(parameters.size()))
      return nullptr;
    // Read, never written. NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
    return const_cast<std::byte*>(parameters.data() + touch.at);
  }
  const Stretch* const stretch = block.grid.find(touch.at);
  if (stretch == nullptr || touch.bytes > stretch->end - touch.at ||
      (stretch->is_read_only && touch.access != Access::kRead))
    return nullptr;
  if (stretch->set != nullptr && block.grid.checks.unset)
    check_set(lanes, instruction, touch, stretch->set + (touch.at - stretch->begin));
  // An address of this process. NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<std::byte*>(touch.at);
}

}  // namespace

void require_aligned(const Lanes& lanes, const Instruction& instruction,
                     const Touch& touch) {
  const std::size_t unit = touch.alignment != 0 ? touch.alignment : touch.bytes;
  if (touch.at % std::min(unit, kWidestAccess) != 0)
    fail(lanes, instruction, touch, kMisalignedAddress);
}

std::byte* reach_one(const Lanes& lanes, const Instruction& instruction, Touch touch) {
  if (touch.space == Space::kGeneric)
    resolve(touch);
  require_aligned(lanes, instruction, touch);
  std::byte* const found = find(lanes, instruction, touch);
  if (found == nullptr)
    fail(lanes, instruction, touch, kIllegalAddress);
  return found;
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
  const std::uint64_t window = low & kWindowMask;
  if (space == Space::kGeneric && (high & kWindowMask) == window &&
      (window == 0 || window == kSharedWindow)) {
    space = window == 0 ? Space::kGlobal : Space::kShared;
    for (auto& each : address) each &= ~kWindowMask;
    low &= ~kWindowMask;
    high &= ~kWindowMask;
  }
  Reach reached;
  if (checks.conflicts && (space == Space::kShared || space == Space::kGlobal))
    count_traffic(lanes, instruction, space, address, bytes);
  const bool is_aligned = (together & (std::min(bytes, kWidestAccess) - 1)) == 0;
  // All lanes in one piece of memory, and nothing else to look at.
  if (is_aligned && space == Space::kShared && !checks.unset && !checks.races &&
      bytes <= block.shared.size() && high <= block.shared.size() - bytes) {
    for_each_lane(lanes.mask, [&](unsigned lane) {
      reached.at[lane] = block.shared.data() + address[lane];
    });
    return reached;
  }
  if (is_aligned && space == Space::kGlobal && !checks.unset) {
    const Stretch* const stretch = block.grid.find(low);
    if (stretch != nullptr && bytes <= stretch->end && high <= stretch->end - bytes &&
        (!stretch->is_read_only || access == Access::kRead)) {
      for (unsigned lane = 0; lane < kLanes; ++lane)
        // Addresses of this process. NOLINTNEXTLINE(performance-no-int-to-ptr)
        reached.at[lane] = reinterpret_cast<std::byte*>(address[lane]);
      return reached;
    }
  }
  for (std::uint32_t left = lanes.mask; left != 0; left &= left - 1) {
    const unsigned lane = first_lane(left);
    reached.at[lane] = reach_one(lanes, instruction,
                                 {.lane = lane,
                                  .space = space,
                                  .at = address[lane],
                                  .bytes = bytes,
                                  .access = access});
  }
  return reached;
}

}  // namespace kiln::ptx
