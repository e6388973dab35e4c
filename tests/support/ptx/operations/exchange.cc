// What the lanes of a warp tell each other (PTX ISA, "Data Movement": shfl.sync;
// "Parallel Synchronization": vote.sync, match.sync, redux.sync, activemask,
// bar.warp.sync, elect.sync). gather() leaves each lane's value in the warp's exchange;
// run() reads those of the lanes that take part.

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/support/ptx/machine.h"
#include "tests/support/ptx/numbers.h"
#include "tests/support/ptx/operations/elementwise.h"

namespace kiln::ptx {
namespace {

template <typename T>
void gather(Lanes& lanes, const Instruction& instruction) {
  const T* const from = lanes.at<T>(instruction.operands[1]);
  for_each_lane(lanes.mask,
                [&](unsigned lane) { lanes.warp->exchange[lane] = from[lane]; });
}
void gather_predicate(Lanes& lanes, const Instruction& instruction) {
  const std::uint32_t from = lanes.predicate(instruction.operands[1]);
  for_each_lane(lanes.mask,
                [&](unsigned lane) { lanes.warp->exchange[lane] = from >> lane & 1U; });
}

Operand members_of(Decoder& decoder, std::size_t index) {
  decoder.made.course = Course::kExchange;
  return decoder.source(decoder.argument(index), kB32);
}

// Operands: d, a, b, c, p. Source: PTX ISA, "shfl.sync", its pseudo-code.
enum ShuffleMode : std::uint8_t { kUp, kDown, kButterfly, kIndex };
void shuffle(Lanes& lanes, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  auto* const to = lanes.at<std::uint32_t>(operands[0]);
  const auto* const b = lanes.at<std::uint32_t>(operands[2]);
  const auto* const c = lanes.at<std::uint32_t>(operands[3]);
  std::uint32_t is_inside = 0;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    const unsigned segment = c[lane] >> 8U & 31U;
    const unsigned clamp = c[lane] & 31U;
    const unsigned by = b[lane] & 31U;
    const unsigned most = (lane & segment) | (clamp & ~segment);
    const auto source = static_cast<int>(
        instruction.mode == kUp          ? lane - by  // perhaps negative
        : instruction.mode == kDown      ? lane + by
        : instruction.mode == kButterfly ? lane ^ by
                                         : (lane & segment) | (by & ~segment));
    const bool is_in = instruction.mode == kUp ? source >= static_cast<int>(most)
                                               : source <= static_cast<int>(most);
    const unsigned from = is_in ? static_cast<unsigned>(source) & 31U : lane;
    if ((lanes.warp->participants >> from & 1U) == 0)
      lanes.block->note("a shuffle reads a lane that takes no part: " +
                        describe(lanes.block->grid.program, *instruction.statement));
    to[lane] = static_cast<std::uint32_t>(lanes.warp->exchange[from]);
    is_inside |= std::uint32_t{is_in} << lane;
  });
  lanes.set_predicate(operands[4], is_inside);
}
void select_shuffle(Decoder& decoder) {
  decoder.take("sync");
  const auto mode = decoder.take_one({"up", "down", "bfly", "idx"});
  if (!mode || decoder.count() != 5)
    decoder.refuse("only shfl.sync is run here");
  decoder.take_type();
  const auto& to = decoder.argument(0);
  auto& made = decoder.made;
  made.mode = static_cast<std::uint8_t>(*mode);
  made.operands = {
      decoder.destination(to, kB32), decoder.source(decoder.argument(1), kB32),
      decoder.source(decoder.argument(2), kB32),
      decoder.source(decoder.argument(3), kB32), decoder.second_destination(to)};
  made.members = members_of(decoder, 4);
  made.gather = &gather<std::uint32_t>;
  made.run = &shuffle;
}

/// The lanes that take part and whose value is not 0.
std::uint32_t votes(const Lanes& lanes) {
  std::uint32_t result = 0;
  for_each_lane(lanes.warp->participants, [&](unsigned lane) {
    result |= std::uint32_t{lanes.warp->exchange[lane] != 0} << lane;
  });
  return result;
}
void vote(Lanes& lanes, const Instruction& instruction) {
  const std::uint32_t yes = votes(lanes);
  const std::uint32_t all = lanes.warp->participants;
  const std::array<bool, 3> answers{yes == all, yes != 0, yes == 0 || yes == all};
  if (instruction.mode < answers.size()) {
    lanes.set_predicate(instruction.operands[0],
                        answers[instruction.mode] ? kAllLanes : 0);
    return;
  }
  set_all(lanes, instruction.operands[0], yes);
}
void select_vote(Decoder& decoder) {
  if (!decoder.take("sync"))
    decoder.refuse("only vote.sync is run here");
  const auto mode = decoder.take_one({"all", "any", "uni", "ballot"});
  decoder.take_type();
  auto& made = decoder.made;
  made.mode = static_cast<std::uint8_t>(mode.value_or(3));
  made.operands = {
      decoder.destination(decoder.argument(0), made.mode == 3 ? kB32 : kPred),
      decoder.source(decoder.argument(1), kPred)};
  made.members = members_of(decoder, 2);
  made.gather = &gather_predicate;
  made.run = &vote;
}

// Operands: d, a, p.
void match(Lanes& lanes, const Instruction& instruction) {
  const auto& exchange = lanes.warp->exchange;
  const std::uint32_t all = lanes.warp->participants;
  const bool is_all = instruction.is_other;
  auto* const to = lanes.at<std::uint32_t>(instruction.operands[0]);
  std::uint32_t are_equal = 0;
  for_each_lane(lanes.mask, [&](unsigned lane) {
    std::uint32_t equal = 0;
    for_each_lane(all, [&](unsigned other) {
      equal |= std::uint32_t{exchange[other] == exchange[lane]} << other;
    });
    are_equal |= std::uint32_t{equal == all} << lane;
    to[lane] = is_all && equal != all ? 0 : equal;
  });
  lanes.set_predicate(instruction.operands[2], are_equal);
}
void select_match(Decoder& decoder) {
  auto& made = decoder.made;
  const auto mode = decoder.take_one({"any", "all"});
  made.is_other = mode == 1;
  decoder.take("sync");
  const Type type = bits_of(decoder.take_type());
  const auto& to = decoder.argument(0);
  made.operands = {decoder.destination(to, kB32),
                   decoder.source(decoder.argument(1), type),
                   decoder.second_destination(to)};
  made.members = members_of(decoder, 2);
  made.gather = type.bits == 64 ? &gather<std::uint64_t> : &gather<std::uint32_t>;
  made.run = &match;
}

enum Reduction : std::uint8_t { kSum, kLeast, kGreatest, kAnd, kOr, kXor };
template <typename T>
T reduced(const Lanes& lanes, Reduction reduction) {
  bool is_first = true;
  T result{};
  for_each_lane(lanes.warp->participants, [&](unsigned lane) {
    const auto value = static_cast<T>(lanes.warp->exchange[lane]);
    const auto bits = static_cast<std::uint32_t>(result);
    const auto other = static_cast<std::uint32_t>(value);
    const std::array<T, 6> results{
        static_cast<T>(bits + other), std::min(result, value),
        std::max(result, value),      static_cast<T>(bits & other),
        static_cast<T>(bits | other), static_cast<T>(bits ^ other)};
    result = is_first ? value : results[reduction];
    is_first = false;
  });
  return result;
}
void reduce(Lanes& lanes, const Instruction& instruction) {
  const auto reduction = static_cast<Reduction>(instruction.mode);
  const std::uint32_t result =
      instruction.is_other
          ? static_cast<std::uint32_t>(reduced<std::int32_t>(lanes, reduction))
          : reduced<std::uint32_t>(lanes, reduction);
  set_all(lanes, instruction.operands[0], result);
}
// Of floats: min and max, mode; is_other: of magnitudes.
template <bool kKeepsNan>
void reduce_floats(Lanes& lanes, const Instruction& instruction) {
  bool is_nan = false;
  bool is_first = true;
  float result = std::bit_cast<float>(kNan32);
  for_each_lane(lanes.warp->participants, [&](unsigned lane) {
    auto value =
        std::bit_cast<float>(static_cast<std::uint32_t>(lanes.warp->exchange[lane]));
    if (instruction.is_other)
      value = std::fabs(value);
    is_nan = is_nan || std::isnan(value);
    if (std::isnan(value))
      return;
    result = is_first                     ? value
             : instruction.mode == kLeast ? std::fmin(result, value)
                                          : std::fmax(result, value);
    is_first = false;
  });
  if (kKeepsNan && is_nan)
    result = std::bit_cast<float>(kNan32);
  set_all(lanes, instruction.operands[0], result);
}
void select_reduction(Decoder& decoder) {
  auto& made = decoder.made;
  decoder.take("sync");
  const auto mode = decoder.take_one({"add", "min", "max", "and", "or", "xor"});
  if (!mode)
    decoder.refuse("its operation is not known");
  made.mode = static_cast<std::uint8_t>(*mode);
  const bool of_magnitudes = decoder.take("abs");
  const bool keeps_nan = decoder.take("NaN");
  const Type type = decoder.take_type();
  if (!type.is_integer() && made.mode != kLeast && made.mode != kGreatest)
    decoder.refuse("of floats it has min and max alone");
  decoder.made.operands = {decoder.destination(decoder.argument(0), type),
                           decoder.source(decoder.argument(1), type)};
  made.members = members_of(decoder, 2);
  made.gather = &gather<std::uint32_t>;
  made.is_other =
      type.kind == Kind::kFloat ? of_magnitudes : type.kind == Kind::kSigned;
  made.run = type.kind != Kind::kFloat ? &reduce
             : keeps_nan               ? &reduce_floats<true>
                                       : &reduce_floats<false>;
}

void read_active_mask(Lanes& lanes, const Instruction& instruction) {
  set_all(lanes, instruction.operands[0], lanes.mask);
}
void select_active_mask(Decoder& decoder) {
  decoder.take_type();
  decoder.made.operands = {decoder.destination(decoder.argument(0), kB32)};
  decoder.made.run = &read_active_mask;
}

// One of the lanes, the same for all: the first. Operands: d, dropped, p.
void elect(Lanes& lanes, const Instruction& instruction) {
  const unsigned chosen = first_lane(lanes.warp->participants);
  lanes.set_predicate(instruction.operands[2], 1U << chosen);
  if (!instruction.operands[0].is_dropped())
    set_all(lanes, instruction.operands[0], chosen);
}
void select_election(Decoder& decoder) {
  decoder.take("sync");
  const auto& to = decoder.argument(0);
  decoder.made.operands = {decoder.destination(to, kB32), Operand{},
                           decoder.second_destination(to)};
  decoder.made.members = members_of(decoder, 1);
  decoder.made.run = &elect;
}

}  // namespace

void meet_lanes(Lanes& lanes, const Instruction&) {
  Races& races = lanes.block->races;
  if (races.is_watching())
    races.join_lanes(lanes.warp->index(), lanes.warp->participants);
}

std::span<const Operation> warp_operations() {
  static constexpr auto kAll = std::to_array<Operation>({
      {"shfl", &select_shuffle},
      {"vote", &select_vote},
      {"match", &select_match},
      {"redux", &select_reduction},
      {"activemask", &select_active_mask},
      {"elect", &select_election},
  });
  return kAll;
}

}  // namespace kiln::ptx
