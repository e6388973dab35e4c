// PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier". What a
// kernel sees as opaque is here: the arrivals that are due in bits 0 to 19, those of
// each phase in bits 20 to 39, the bytes that are due (tx-count) in bits 40 to 61, and
// the phase, which changes once nothing is due, in bit 63. Bit 62 says that it is none.

#include "tests/support/ptx/operations/mbarrier.h"

#include <fmt/format.h>

#include <array>

#include "tests/support/ptx/memory.h"
#include "tests/support/ptx/operations/copies.h"
#include "tests/support/ptx/operations/elementwise.h"

namespace kiln::ptx {
namespace {

constexpr std::uint32_t kMostArrivals = (1U << 20U) - 1;
constexpr std::int64_t kMostBytes = (1 << 20) - 1;

struct State {
  std::int64_t pending = 0;
  std::int64_t expected = 0;
  std::int64_t bytes = 0;
  bool phase = false;

  static State of(std::uint64_t word) {
    return {.pending = static_cast<std::int64_t>(word & kMostArrivals),
            .expected = static_cast<std::int64_t>(word >> 20U & kMostArrivals),
            .bytes = static_cast<std::int64_t>(word << 2U) >> 42U,
            .phase = word >> 63U != 0};
  }
  [[nodiscard]] std::uint64_t word() const {
    return static_cast<std::uint64_t>(pending) |
           static_cast<std::uint64_t>(expected) << 20U |
           (static_cast<std::uint64_t>(bytes) & 0x3fffffU) << 40U |
           std::uint64_t{phase} << 63U;
  }
};

std::uint64_t read(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}
void write(std::byte* at, std::uint64_t word) {
  std::memcpy(at, &word, sizeof word);
}

[[noreturn]] void fail(const Lanes& lanes, const Instruction& instruction,
                       unsigned lane, std::string_view why) {
  throw Fault{
      kIllegalInstruction,
      fmt::format("{}, by {}: {}", why, lanes.block->describe_thread(*lanes.warp, lane),
                  describe(lanes.block->grid.program, *instruction.statement))};
}

/// In shared memory.
std::uint64_t offset_of(const Block& block, const std::byte* at) {
  return static_cast<std::uint64_t>(at - block.shared.data());
}
// Invalidated, or never written: shared memory begins as ones.
bool is_none(std::uint64_t word) {
  return (word >> 62U & 1U) != 0;
}

// mbarrier.arrive, arrive_drop, expect_tx, complete_tx.
enum Change : std::uint8_t { kArrive, kDrop, kExpect, kComplete };

struct Amount {
  std::int64_t arrivals = 0;
  std::int64_t bytes = 0;
  bool drops = false;
};

/// False: so many were not due, or it is none.
bool change(Block& block, std::byte* at, const Amount& amount) {
  if (is_none(read(at)))
    return false;
  State state = State::of(read(at));
  state.bytes += amount.bytes;
  state.pending -= amount.arrivals;
  if (amount.drops)
    state.expected -= amount.arrivals;
  if (state.pending < 0 || state.expected < 0 || state.pending > kMostArrivals ||
      std::abs(state.bytes) > kMostBytes)
    return false;
  if (state.pending == 0 && state.bytes == 0) {
    state.phase = !state.phase;
    state.pending = state.expected;
    if (block.races.is_watching())
      block.races.complete(offset_of(block, at));
  }
  write(at, state.word());
  return true;
}

/// The mbarriers of the lanes. Each lies in shared memory, and has been initialized if
/// it is not written to now.
Reach reach_barriers(const Lanes& lanes, const Instruction& instruction,
                     Access access) {
  const Reach reached =
      reach(lanes, instruction, instruction.operands[0], sizeof(std::uint64_t), access);
  for_each_lane(lanes.mask, [&](unsigned lane) {
    if (!lanes.block->has(reached.at[lane]))
      fail(lanes, instruction, lane, "an mbarrier outside of shared memory");
    if (access != Access::kWrite && is_none(read(reached.at[lane])))
      fail(lanes, instruction, lane, "an mbarrier that is not initialized");
  });
  return reached;
}

void note_arrival(const Lanes& lanes, unsigned lane, const std::byte* at) {
  Block& block = *lanes.block;
  if (block.races.is_watching())
    block.races.release(offset_of(block, at), lanes.warp->first_thread() + lane);
}

// Operands: the address, the count (or dropped).
void initialize(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const Reach reached = reach_barriers(lanes, instruction, Access::kWrite);
  for_each_lane(lanes.mask, [&](unsigned lane) {
    lanes.block->races.forget(offset_of(*lanes.block, reached.at[lane]));
    if (operands[1].is_dropped()) {  // inval
      write(reached.at[lane], ~std::uint64_t{0});
      return;
    }
    const std::uint32_t count = lanes.at<std::uint32_t>(operands[1])[lane];
    if (count == 0 || count > kMostArrivals)
      fail(lanes, instruction, lane, "an mbarrier of no thread, or of too many");
    write(reached.at[lane], State{.pending = count, .expected = count}.word());
  });
}

// Operands: the address, the state before (or dropped), the arrivals, the bytes (each
// may be dropped). mode: a Change; is_other: noComplete.
void arrive(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const Reach reached = reach_barriers(lanes, instruction, Access::kAtomic);
  const auto value = [&](const Operand& operand, unsigned lane,
                         std::int64_t otherwise) {
    return operand.is_dropped() ? otherwise
                                : std::int64_t{lanes.at<std::uint32_t>(operand)[lane]};
  };
  const bool arrives = instruction.mode == kArrive || instruction.mode == kDrop;
  in_some_order(lanes, [&](unsigned lane) {
    std::byte* const at = reached.at[lane];
    const std::uint64_t before = read(at);
    const std::int64_t bytes = value(operands[3], lane, 0);
    if (arrives)
      note_arrival(lanes, lane, at);
    if (!change(*lanes.block, at,
                {.arrivals = arrives ? value(operands[2], lane, 1) : 0,
                 .bytes = instruction.mode == kComplete ? -bytes : bytes,
                 .drops = instruction.mode == kDrop}))
      fail(lanes, instruction, lane, "more than an mbarrier waits for");
    if (instruction.is_other && State::of(before).phase != State::of(read(at)).phase)
      fail(lanes, instruction, lane, "an arrival with .noComplete ends a phase");
    if (!operands[1].is_dropped())
      lanes.at<std::uint64_t>(operands[1])[lane] = before;
  });
}

// Operands: the address, a predicate, the state or the parity (is_other).
void test(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const Reach reached = reach_barriers(lanes, instruction, Access::kAtomic);
  std::uint32_t are_over = 0;
  in_some_order(lanes, [&](unsigned lane) {
    std::byte* const at = reached.at[lane];
    settle(*lanes.block, [&](const Tracked& tracked) { return tracked.barrier == at; });
    const bool asked =
        instruction.is_other
            ? (lanes.at<std::uint32_t>(operands[2])[lane] & 1U) != 0
            : State::of(lanes.at<std::uint64_t>(operands[2])[lane]).phase;
    const bool is_over = State::of(read(at)).phase != asked;
    are_over |= std::uint32_t{is_over} << lane;
    if (is_over && lanes.block->races.is_watching())
      lanes.block->races.acquire(offset_of(*lanes.block, at),
                                 lanes.warp->first_thread() + lane);
  });
  lanes.set_predicate(operands[1], are_over);
}

void count_pending(Lanes& lanes, const Instruction& instruction) {
  auto* const to = lanes.at<std::uint32_t>(instruction.operands[0]);
  const auto* const from = lanes.at<std::uint64_t>(instruction.operands[1]);
  for_each_lane(lanes.mask, [&](unsigned lane) {
    to[lane] = static_cast<std::uint32_t>(State::of(from[lane]).pending);
  });
}

// cp.async.mbarrier.arrive: an arrival once the thread's copies have landed, which is
// when somebody looks. is_other: noinc.
void arrive_after_copies(Lanes& lanes, const Instruction& instruction) {
  const Reach reached = reach_barriers(lanes, instruction, Access::kAtomic);
  in_some_order(lanes, [&](unsigned lane) {
    std::byte* const at = reached.at[lane];
    if (!instruction.is_other && !change(*lanes.block, at, {.arrivals = -1}))
      fail(lanes, instruction, lane, "more than an mbarrier waits for");
    note_arrival(lanes, lane, at);
    track(lanes, lane, at);
  });
}

// ---- What the statements say ------------------------------------------------------

void select_arrival(Decoder& decoder, Change kind) {
  auto& made = decoder.made;
  const bool expects = kind == kExpect || decoder.take("expect_tx");
  made.is_other = decoder.take("noComplete");
  made.mode = kind;
  // expect_tx and complete_tx have no state.
  const std::size_t first = kind == kArrive || kind == kDrop ? 1 : 0;
  const auto& state = decoder.argument(0);
  decoder.address(decoder.argument(first), made.space);
  made.operands.push_back(first == 0 ? Operand{} : decoder.destination(state, kB64));
  const Operand amount = decoder.count() > first + 1
                             ? decoder.source(decoder.argument(first + 1), kU32)
                             : Operand{};
  const bool is_of_bytes = expects || kind == kComplete;
  made.operands.push_back(is_of_bytes ? Operand{} : amount);
  made.operands.push_back(is_of_bytes ? amount : Operand{});
  made.run = &arrive;
}

void select_mbarrier(Decoder& decoder) {
  auto& made = decoder.made;
  if (decoder.take("pending_count")) {
    decoder.take_type();
    decoder.operands(kU32, {kB64});
    made.run = &count_pending;
    return;
  }
  const auto what =
      decoder.take_one({"init", "inval", "test_wait", "try_wait", "arrive",
                        "arrive_drop", "expect_tx", "complete_tx"});
  if (!what)
    decoder.refuse("this use of an mbarrier is not run here");
  decoder.take_hints();
  made.space = decoder.take_space();
  if (*what <= 1) {
    decoder.take_type();
    decoder.address(decoder.argument(0), made.space);
    made.operands.push_back(*what == 0 ? decoder.source(decoder.argument(1), kU32)
                                       : Operand{});
    made.run = &initialize;
  } else if (*what <= 3) {  // try_wait may give up at once
    made.is_other = decoder.take("parity");
    decoder.take_type();
    decoder.address(decoder.argument(1), made.space);
    made.operands.push_back(decoder.destination(decoder.argument(0), kPred));
    made.operands.push_back(
        decoder.source(decoder.argument(2), made.is_other ? kU32 : kB64));
    made.run = &test;
  } else {
    constexpr std::array kChanges{kArrive, kDrop, kExpect, kComplete};
    select_arrival(decoder, kChanges[*what - 4]);
    decoder.take_type();
  }
}

}  // namespace

void arrive_for(Block& block, const Tracked& tracked) {
  // Without .noinc the arrival is due; with it the kernel has counted it, or not.
  if (!change(block, tracked.barrier, {.arrivals = 1}))
    throw Fault{
        kIllegalInstruction,
        fmt::format("more than an mbarrier waits for, by the copies of {} (at "
                    "{:#x} in shared memory)",
                    block.describe_thread(*block.warps[tracked.warp], tracked.lane),
                    offset_of(block, tracked.barrier))};
}

void select_arrival_after_copies(Decoder& decoder) {
  auto& made = decoder.made;
  decoder.take_named("arrive");
  made.is_other = decoder.take("noinc");
  made.space = decoder.take_space();
  decoder.take_type();
  decoder.address(decoder.argument(0), made.space);
  made.run = &arrive_after_copies;
}

std::span<const Operation> mbarrier_operations() {
  static constexpr auto kAll =
      std::to_array<Operation>({{"mbarrier", &select_mbarrier}});
  return kAll;
}

}  // namespace kiln::ptx
