// PTX ISA, "Control Flow Instructions", and of "Parallel Synchronization" the barriers.
// How lanes part and meet is the warp's (warp.cc).

#include <array>

#include "tests/support/ptx/machine.h"
#include "tests/support/ptx/operations/builtins.h"
#include "tests/support/ptx/operations/elementwise.h"

namespace kiln::ptx {

void meet_lanes(Lanes& lanes, const Instruction& instruction);  // exchange.cc

namespace {

void select_branch(Decoder& decoder) {
  decoder.take("uni");
  decoder.made.course = Course::kBranch;
  decoder.jump_to(decoder.argument(0).name);
}

void select_table_branch(Decoder& decoder) {
  decoder.take("idx");
  decoder.take("uni");
  decoder.made.course = Course::kTable;
  decoder.made.operands = {decoder.source(decoder.argument(0), kU32)};
  for (const std::string_view label : decoder.table(decoder.argument(1).name))
    decoder.jump_to(label);
}

// call (result), callee, (arguments), prototype; lists may be missing.
void select_call(Decoder& decoder) {
  using Argument = syntax::Argument;
  decoder.take("uni");
  auto& made = decoder.made;
  auto call = std::make_unique<Call>();
  std::size_t index = 0;
  const auto region_of = [&](const Argument& argument) {
    const auto region = decoder.region(argument.name);
    if (!region)
      decoder.refuse("parameters in registers are not run here");
    return *region;
  };
  if (decoder.argument(0).kind == Argument::Kind::kList) {
    if (decoder.argument(0).parts.size() != 1)
      decoder.refuse("several results are not run here");
    call->result = region_of(decoder.argument(0).parts[0]);
    index = 1;
  }
  const Argument& target = decoder.argument(index++);
  if (index < decoder.count() &&
      decoder.argument(index).kind == Argument::Kind::kList) {
    for (const Argument& each : decoder.argument(index).parts)
      call->arguments.push_back(region_of(each));
  }
  const Function* const callee = decoder.function(target.name);
  if (callee != nullptr && !callee->syntax->has_body) {
    const Handler builtin = builtin_function(target.name);
    if (builtin == nullptr)
      decoder.refuse("this function has no body and is none of a device's own");
    const auto operand = [](const Region& each) {
      return Operand{.at = each.at, .bytes = each.size != 0};
    };
    made.operands.push_back(operand(call->result));
    for (const Region& each : call->arguments) made.operands.push_back(operand(each));
    made.run = builtin;
    return;
  }
  made.course = Course::kCall;
  if (callee != nullptr && callee->syntax->parameters.size() != call->arguments.size())
    decoder.refuse("it has not as many parameters as the function");
  call->callee = callee;
  if (callee == nullptr)
    made.operands.push_back(decoder.source(target, kB64));
  decoder.calls(callee);
  made.call = std::move(call);
}

void select_return(Decoder& decoder) {
  decoder.take("uni");
  decoder.made.course = Course::kReturn;
}
void select_exit(Decoder& decoder) {
  decoder.made.course = Course::kExit;
}

void trap(Lanes& lanes, const Instruction& instruction) {
  throw Fault{kIllegalInstruction,
              lanes.block->describe_thread(*lanes.warp, first_lane(lanes.mask)) +
                  " ran into " +
                  describe(lanes.block->grid.program, *instruction.statement)};
}
void select_trap(Decoder& decoder) {
  decoder.made.run = &trap;
}
// bar.red: operands barrier, threads, result, predicate; mode: popc, and, or.
Block::Barrier& barrier_of(const Lanes& lanes, const Instruction& instruction) {
  const auto* const numbers = lanes.at<std::uint32_t>(instruction.operands[0]);
  return lanes.block->barriers[numbers[first_lane(lanes.mask)]];
}
void gather_votes(Lanes& lanes, const Instruction& instruction) {
  Block::Barrier& barrier = barrier_of(lanes, instruction);
  const std::uint32_t votes = lanes.predicate(instruction.operands[3]) & lanes.mask;
  barrier.count += static_cast<unsigned>(std::popcount(votes));
  barrier.all = barrier.all && votes == lanes.mask;
  barrier.any = barrier.any || votes != 0;
}
void read_votes(Lanes& lanes, const Instruction& instruction) {
  const Block::Barrier& barrier = barrier_of(lanes, instruction);
  if (instruction.mode != 0) {
    const bool answer = instruction.mode == 1 ? barrier.result_all : barrier.result_any;
    lanes.set_predicate(instruction.operands[2], answer ? kAllLanes : 0);
    return;
  }
  set_all(lanes, instruction.operands[2], barrier.result_count);
}

// Operands: the barrier, the threads that it waits for, or dropped. is_other: aligned.
void select_barrier(Decoder& decoder) {
  auto& made = decoder.made;
  if (decoder.take("warp")) {
    decoder.take("sync");
    made.course = Course::kExchange;
    made.members = decoder.source(decoder.argument(0), kB32);
    made.run = &meet_lanes;
    return;
  }
  if (decoder.take("cluster"))
    decoder.refuse("clusters are not run here");
  decoder.take("cta");
  const auto kind = decoder.take_one({"sync", "arrive", "red"});
  made.course = kind == 1 ? Course::kArrival : Course::kBarrier;
  made.is_other = decoder.take("aligned") || decoder.statement().opcode == "bar";
  const bool votes = kind == 2;
  std::size_t at = votes ? 1 : 0;
  const std::size_t least = votes ? 3 : 1;
  made.operands = {decoder.source(decoder.argument(at++), kU32), Operand{}};
  if (decoder.count() > least)
    made.operands[1] = decoder.source(decoder.argument(at++), kU32);
  if (!votes)
    return;
  made.mode =
      static_cast<std::uint8_t>(decoder.take_one({"popc", "and", "or"}).value_or(0));
  decoder.take_type();
  made.operands.push_back(
      decoder.destination(decoder.argument(0), made.mode == 0 ? kU32 : kPred));
  made.operands.push_back(decoder.source(decoder.argument(at), kPred));
  made.gather = &gather_votes;
  made.run = &read_votes;
}

}  // namespace

std::span<const Operation> control_operations() {
  static constexpr auto kAll = std::to_array<Operation>({
      {"bra", &select_branch},
      {"brx", &select_table_branch},
      {"call", &select_call},
      {"ret", &select_return},
      {"exit", &select_exit},
      {"trap", &select_trap},
      {"bar", &select_barrier},
      {"barrier", &select_barrier},
  });
  return kAll;
}

}  // namespace kiln::ptx
