// A warp's course: fragments of lanes that part at branches and join again where they
// meet. Source: PTX ISA, "Control Flow Instructions" and "Independent Thread
// Scheduling".

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/support/ptx/machine.h"

namespace kiln::ptx {
namespace {

constexpr std::size_t kNone = SIZE_MAX;

unsigned count(std::uint32_t lanes) {
  return static_cast<unsigned>(std::popcount(lanes));
}

}  // namespace

Warp::Warp(Block& block, unsigned index, unsigned threads)
    : block_(block),
      index_(index),
      alive_(threads >= kLanes ? kAllLanes : (1U << threads) - 1),
      local_(kLanes) {
  fragments_.push_back({.lanes = alive_, .frame = make_frame(*block.grid.entry, {})});
}

Lanes Warp::lanes(const Fragment& fragment, std::uint32_t mask) {
  return {.frame = fragment.frame->bytes.get(),
          .mask = mask,
          .warp = this,
          .block = &block_,
          .noise = block_.grid.schedule.is_noisy ? &block_.random : nullptr};
}

// In order: the deepest call, and there the lanes that are furthest behind, so that
// lanes join again as soon as they can; after a whole turn, those whose own turn is
// longest ago. By seed: any.
std::size_t Warp::choose() {
  std::size_t best = kNone;
  unsigned seen = 0;
  const auto is_ahead = [&](const Fragment& a, const Fragment& b) {
    if (is_turn_over_ && a.turn != b.turn)
      return a.turn < b.turn;
    return a.frame->depth != b.frame->depth ? a.frame->depth > b.frame->depth
                                            : a.at < b.at;
  };
  for (std::size_t i = 0; i < fragments_.size(); ++i) {
    if (fragments_[i].state != Fragment::State::kReady)
      continue;
    ++seen;
    if (block_.grid.schedule.seed != 0) {
      if (block_.random.below(seen) == 0)
        best = i;
    } else if (best == kNone || is_ahead(fragments_[i], fragments_[best])) {
      best = i;
    }
  }
  is_turn_over_ = false;
  return best;
}

// All that stand where the chosen one stands, or of them those that wait there for the
// whole warp, in one fragment: its index.
std::size_t Warp::merge(std::size_t chosen, bool waiting_alone) {
  for (std::size_t i = fragments_.size(); i-- > 0;) {
    Fragment& into = fragments_[chosen];
    const Fragment& other = fragments_[i];
    const bool can_join = other.state == Fragment::State::kTogether ||
                          (!waiting_alone && other.state == Fragment::State::kReady);
    if (i == chosen || !can_join || other.at != into.at || other.frame != into.frame)
      continue;
    into.lanes |= other.lanes;
    fragments_.erase(fragments_.begin() + static_cast<std::ptrdiff_t>(i));
    chosen -= i < chosen ? 1 : 0;
  }
  return chosen;
}

// Where the chosen lanes would meet others of their frame.
std::size_t Warp::next_join(std::size_t chosen) const {
  std::size_t next = kNone;
  for (const Fragment& other : fragments_) {
    if (other.frame == fragments_[chosen].frame && other.at > fragments_[chosen].at)
      next = std::min(next, other.at);
  }
  return next;
}

void Warp::split(std::size_t index, std::uint32_t lanes, std::size_t at) {
  Fragment other = fragments_[index];
  other.lanes = lanes;
  other.at = at;
  other.state = Fragment::State::kReady;
  fragments_[index].lanes &= ~lanes;
  fragments_.push_back(std::move(other));
}

void Warp::wake() {
  for (Fragment& each : fragments_) {
    if (each.state == Fragment::State::kTogether ||
        each.state == Fragment::State::kExchange)
      each.state = Fragment::State::kReady;
  }
}

bool Warp::run(std::uint64_t quantum) {
  Noise& random = block_.random;
  const Schedule& schedule = block_.grid.schedule;
  bool has_run = false;
  std::uint64_t left = quantum;
  while (left > 0) {
    std::size_t chosen = choose();
    if (chosen == kNone)
      return has_run;
    chosen = merge(chosen, false);
    std::uint64_t turn = left;
    if (schedule.seed != 0 && (fragments_.size() > 1 || schedule.splits_warps)) {
      turn = std::min<std::uint64_t>(left, 1 + random.below(64));
      const auto some =
          static_cast<std::uint32_t>(random.draw() >> 32U) & fragments_[chosen].lanes;
      if (schedule.splits_warps && random.below(8) == 0 && some != 0 &&
          some != fragments_[chosen].lanes)
        split(chosen, some, fragments_[chosen].at);
    }
    const std::uint64_t before = turn;
    step(chosen, turn);
    left -= before - turn;
    has_run = has_run || before != turn;
    is_turn_over_ = turn == 0;
    if (is_turn_over_ && chosen < fragments_.size())
      fragments_[chosen].turn = ++turns_;
  }
  return has_run;
}

// Runs the fragment until its turn is over, it meets others, parts, waits or ends.
void Warp::step(std::size_t index, std::uint64_t& left) {
  Fragment& fragment = fragments_[index];
  const std::vector<Instruction>& code = fragment.frame->function->code;
  Lanes lanes = this->lanes(fragment, 0);
  const std::size_t join = next_join(index);
  std::uint64_t& instructions = block_.grid.report.instructions;
  while (left > 0) {
    const Instruction& instruction = code[fragment.at];
    std::uint32_t active = fragment.lanes;
    if (!instruction.guard.is_dropped())
      active &= lanes.predicate(instruction.guard);
    --left;
    ++instructions;
    if (active == 0) {
      ++fragment.at;
    } else if (instruction.course == Course::kPlain) {
      lanes.mask = active;
      instruction.run(lanes, instruction);
      ++fragment.at;
    } else if (instruction.course == Course::kBranch) {
      if (active != fragment.lanes) {
        split(index, active, instruction.targets[0]);
        ++fragments_[index].at;
        return;
      }
      fragment.at = instruction.targets[0];
    } else {
      if (active != fragment.lanes) {
        // The others go on behind the instruction.
        split(index, fragment.lanes & ~active, fragment.at + 1);
        part_ways(index, instruction);
        return;
      }
      const bool is_simple =
          (instruction.course == Course::kTogether && active == kAllLanes) ||
          (instruction.course == Course::kExchange && active == alive_ &&
           lanes.at<std::uint32_t>(instruction.members)[first_lane(active)] ==
               kAllLanes);
      if (!is_simple) {
        part_ways(index, instruction);
        return;
      }
      lanes.mask = active;
      participants = active;
      if (instruction.gather != nullptr)
        instruction.gather(lanes, instruction);
      instruction.run(lanes, instruction);
      ++fragment.at;
    }
    if (fragment.at >= join)
      return;
  }
}

// What is more than a computation, for all lanes of the fragment.
void Warp::part_ways(std::size_t index, const Instruction& instruction) {
  switch (instruction.course) {
    case Course::kTogether:
      wait_for_all(index, instruction);
      return;
    case Course::kExchange:
      meet(index, instruction);
      return;
    case Course::kBarrier:
    case Course::kArrival:
      wait_at_barrier(index, instruction);
      return;
    case Course::kTable:
      branch_by_table(index, instruction);
      return;
    case Course::kCall:
      call(index, instruction);
      return;
    case Course::kReturn:
      leave(index);
      return;
    case Course::kExit:
      exit(index);
      return;
    default:
      return;
  }
}

void Warp::wait_for_all(std::size_t index, const Instruction& instruction) {
  Fragment& fragment = fragments_[merge(index, true)];
  if (fragment.lanes != alive_) {
    fragment.state = Fragment::State::kTogether;
    return;
  }
  if (alive_ != kAllLanes)
    throw Fault{kIllegalInstruction,
                "not all lanes of the warp are there: " +
                    describe(block_.grid.program, *instruction.statement)};
  Lanes lanes = this->lanes(fragment, fragment.lanes);
  instruction.run(lanes, instruction);
  ++fragment.at;
}

void Warp::meet(std::size_t index, const Instruction& instruction) {
  Fragment& fragment = fragments_[index];
  fragment.state = Fragment::State::kExchange;
  const Lanes lanes = this->lanes(fragment, fragment.lanes);
  const auto* const masks = lanes.at<std::uint32_t>(instruction.members);
  for_each_lane(fragment.lanes, [&](unsigned lane) {
    if ((masks[lane] >> lane & 1U) == 0)
      throw Fault{kIllegalInstruction,
                  fmt::format("{} is not in the mask {:#010x} that it gives: {}",
                              block_.describe_thread(*this, lane), masks[lane],
                              describe(block_.grid.program, *instruction.statement))};
  });
  const std::uint32_t members = masks[first_lane(fragment.lanes)];
  // Lanes with another mask are another party; these wait, so that they stay apart.
  if (const std::uint32_t others = lanes_unlike_the_first(fragment.lanes, masks);
      others != 0)
    split(index, others, fragment.at);
  run_exchange(instruction, members);
}

// Every lane of the mask that has not left has to be at such an instruction with the
// same mask, be it elsewhere in the code.
void Warp::run_exchange(const Instruction& instruction, std::uint32_t members) {
  std::vector<Fragment*> parties;
  std::uint32_t present = 0;
  const auto instruction_of = [](const Fragment& fragment) -> const Instruction& {
    return fragment.frame->function->code[fragment.at];
  };
  for (Fragment& each : fragments_) {
    if (each.state != Fragment::State::kExchange)
      continue;
    const Instruction& at = instruction_of(each);
    const auto* const masks = lanes(each, each.lanes).at<std::uint32_t>(at.members);
    if (masks[first_lane(each.lanes)] != members ||
        at.statement->opcode != instruction.statement->opcode ||
        at.statement->modifiers != instruction.statement->modifiers)
      continue;
    parties.push_back(&each);
    present |= each.lanes;
  }
  if ((members & alive_ & ~present) != 0)
    return;
  participants = present;
  for (const Fragment* party : parties) {
    Lanes lanes = this->lanes(*party, party->lanes);
    if (const Instruction& at = instruction_of(*party); at.gather != nullptr)
      at.gather(lanes, at);
  }
  for (Fragment* party : parties) {
    Lanes lanes = this->lanes(*party, party->lanes);
    const Instruction& at = instruction_of(*party);
    at.run(lanes, at);
    ++party->at;
    party->state = Fragment::State::kReady;
  }
}

// Operands: the barrier, the number of threads; mode: see control.cc.
void Warp::wait_at_barrier(std::size_t index, const Instruction& instruction) {
  if (instruction.is_other)  // .aligned
    index = merge(index, true);
  Fragment& fragment = fragments_[index];
  if (instruction.is_other && fragment.lanes != alive_) {
    fragment.state = Fragment::State::kTogether;
    return;
  }
  Lanes lanes = this->lanes(fragment, fragment.lanes);
  const unsigned lane = first_lane(fragment.lanes);
  const unsigned barrier = lanes.at<std::uint32_t>(instruction.operands[0])[lane];
  const Operand& threads = instruction.operands[1];
  const auto unlike = [&](const Operand& operand) {
    return operand.is_dropped() ? 0
                                : lanes_unlike_the_first(
                                      fragment.lanes, lanes.at<std::uint32_t>(operand));
  };
  if (const std::uint32_t others = unlike(instruction.operands[0]) | unlike(threads);
      others != 0) {
    split(index, others, fragment.at);
    wait_at_barrier(index, instruction);
    return;
  }
  const unsigned expected =
      threads.is_dropped() ? 0 : lanes.at<std::uint32_t>(threads)[lane];
  if (barrier >= block_.barriers.size())
    throw Fault{kIllegalInstruction, fmt::format("there is no barrier {}", barrier)};
  // Of an aligned barrier with a count the warp counts whole.
  const unsigned arrives =
      instruction.is_other && expected != 0 ? kLanes : count(fragment.lanes);
  if (instruction.course == Course::kBarrier) {
    fragment.state = Fragment::State::kBarrier;
    fragment.barrier = barrier;
  } else {
    ++fragment.at;
  }
  if (instruction.gather != nullptr)
    instruction.gather(lanes, instruction);
  if (block_.races.is_watching()) {
    for_each_lane(lanes.mask, [&](unsigned each) {
      block_.races.release(Block::race_key(barrier), first_thread() + each);
    });
  }
  block_.arrive(barrier, arrives, expected);
}

void Warp::release(unsigned barrier) {
  for (Fragment& each : fragments_) {
    if (each.state != Fragment::State::kBarrier || each.barrier != barrier)
      continue;
    const Instruction& instruction = each.frame->function->code[each.at];
    if (instruction.run != nullptr) {
      Lanes lanes = this->lanes(each, each.lanes);
      instruction.run(lanes, instruction);
    }
    if (block_.races.is_watching()) {
      for_each_lane(each.lanes, [&](unsigned lane) {
        block_.races.acquire(Block::race_key(barrier), first_thread() + lane);
      });
    }
    each.state = Fragment::State::kReady;
    ++each.at;
  }
}

void Warp::branch_by_table(std::size_t index, const Instruction& instruction) {
  Fragment& fragment = fragments_[index];
  const Lanes lanes = this->lanes(fragment, fragment.lanes);
  const auto* const which = lanes.at<std::uint32_t>(instruction.operands[0]);
  const std::uint32_t target = which[first_lane(fragment.lanes)];
  if (target >= instruction.targets.size())
    throw Fault{kIllegalInstruction, "a branch beyond the end of its table"};
  if (const std::uint32_t others = lanes_unlike_the_first(fragment.lanes, which);
      others != 0)
    split(index, others, fragment.at);
  fragments_[index].at = instruction.targets[target];
}

void Warp::exit(std::size_t index) {
  const std::uint32_t leaving = fragments_[index].lanes;
  const auto is_leaving = [&](unsigned lane) { return (leaving >> lane & 1U) != 0; };
  if (std::any_of(copies.begin(), copies.end(),
                  [&](const PendingCopy& each) { return is_leaving(each.lane); }))
    block_.note("a thread leaves while its asynchronous copies are under way");
  alive_ &= ~leaving;
  fragments_.erase(fragments_.begin() + static_cast<std::ptrdiff_t>(index));
  wake();
  block_.thread_left();
}

std::string Warp::describe_waits() const {
  std::string text;
  for (const Fragment& each : fragments_) {
    const Instruction& at = each.frame->function->code[each.at];
    text +=
        fmt::format("{}warp {}, lanes {:#010x}: {}", text.empty() ? "" : "; ", index_,
                    each.lanes, describe(block_.grid.program, *at.statement));
  }
  return text;
}

}  // namespace kiln::ptx
