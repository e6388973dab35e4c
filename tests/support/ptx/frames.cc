// What belongs to a function while it runs, and how a warp calls one and comes back.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/support/ptx/machine.h"

namespace kiln::ptx {
namespace {

constexpr unsigned kDeepestCall = 512;
constexpr unsigned kPoison = 0xa5;

}  // namespace

std::shared_ptr<Frame> Warp::make_frame(const Function& function,
                                        std::shared_ptr<Frame> caller) {
  auto frame = std::make_shared<Frame>();
  frame->function = &function;
  frame->bytes = std::make_unique_for_overwrite<std::byte[]>(function.frame_bytes());
  std::memset(frame->bytes.get(), block_.grid.checks.unset ? kPoison : 0,
              function.register_bytes);
  const auto& constants = block_.grid.constants.at(&function);
  std::memcpy(frame->bytes.get() + function.register_bytes, constants.data(),
              constants.size());
  if (caller) {
    frame->depth = caller->depth + 1;
    if (frame->depth > kDeepestCall)
      throw Fault{kLaunchFailed,
                  fmt::format("{} calls itself too deeply", function.name)};
    frame->local_begin = caller->local_begin + caller->function->local_bytes;
    frame->local_begin = (frame->local_begin + 15) / 16 * 16;
    frame->caller = std::move(caller);
  }
  for (auto& local : local_) {
    if (local.size() < frame->local_begin + function.local_bytes)
      local.resize(frame->local_begin + function.local_bytes, std::byte{kPoison});
  }
  for (const Fill& fill : function.fills) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t value =
          fill.special ? fill.special({.block = block_, .warp = *this, .lane = lane})
                       : frame->local_begin + fill.local_at;
      std::memcpy(frame->bytes.get() + fill.at + std::size_t{lane} * fill.bytes, &value,
                  fill.bytes);
    }
  }
  return frame;
}

std::byte* Warp::local(unsigned lane, std::uint64_t at, std::size_t size) {
  auto& bytes = local_[lane];
  return at <= bytes.size() && size <= bytes.size() - at ? bytes.data() + at : nullptr;
}

namespace {

bool are_of_sizes(std::span<const Region> given, std::span<const Region> wanted) {
  return std::equal(given.begin(), given.end(), wanted.begin(), wanted.end(),
                    [](const Region& a, const Region& b) { return a.size == b.size; });
}

}  // namespace

// Lanes that made the same call before are in it: those that make it now can meet them
// there.
std::shared_ptr<Frame> Warp::find_frame(const Function& callee, const Call& call,
                                        const std::shared_ptr<Frame>& caller) const {
  for (const Fragment& each : fragments_) {
    for (auto frame = each.frame; frame->depth > caller->depth; frame = frame->caller) {
      if (frame->caller == caller && frame->call == &call && frame->function == &callee)
        return frame;
    }
  }
  return nullptr;
}

void Warp::call(std::size_t index, const Instruction& instruction) {
  const Call& call = *instruction.call;
  const Function* callee = call.callee;
  if (callee == nullptr) {
    Fragment& fragment = fragments_[index];
    const Lanes lanes = this->lanes(fragment, fragment.lanes);
    const auto* const addresses = lanes.at<std::uint64_t>(instruction.operands[0]);
    const std::uint64_t address = addresses[first_lane(fragment.lanes)];
    const auto& functions = block_.grid.program.functions;
    const std::uint64_t number = address - kCodeWindow;
    if (number >= functions.size() || functions[number]->is_entry)
      throw Fault{kInvalidPc,
                  fmt::format("a call of what is no function: {:#x}", address)};
    const std::uint32_t others = lanes_unlike_the_first(fragment.lanes, addresses);
    if (others != 0)
      split(index, others, fragment.at);
    callee = functions[number].get();
  }
  if (!are_of_sizes(call.arguments, callee->parameters) ||
      (call.result.size != 0 && !are_of_sizes({&call.result, 1}, callee->results)))
    throw Fault{kInvalidPc,
                fmt::format("a call of {} with other parameters", callee->name)};
  Fragment& fragment = fragments_[index];
  auto frame = find_frame(*callee, call, fragment.frame);
  if (frame == nullptr) {
    frame = make_frame(*callee, fragment.frame);
    frame->call = &call;
    frame->return_to = fragment.at + 1;
  }
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const Region& to = callee->parameters[i];
    for_each_lane(fragment.lanes, [&](unsigned lane) {
      const std::size_t at = std::size_t{lane} * to.size;
      std::memcpy(frame->bytes.get() + to.at + at,
                  fragment.frame->bytes.get() + call.arguments[i].at + at, to.size);
    });
  }
  fragment.frame = std::move(frame);
  fragment.at = 0;
}

void Warp::leave(std::size_t index) {
  Fragment& fragment = fragments_[index];
  const Frame& frame = *fragment.frame;
  if (!frame.caller) {
    exit(index);
    return;
  }
  if (frame.call->result.size != 0) {
    const Region& from = frame.function->results[0];
    for_each_lane(fragment.lanes, [&](unsigned lane) {
      std::memcpy(frame.caller->bytes.get() + frame.call->result.at +
                      std::size_t{lane} * from.size,
                  frame.bytes.get() + from.at + std::size_t{lane} * from.size,
                  from.size);
    });
  }
  fragment.at = frame.return_to;
  fragment.frame = std::shared_ptr<Frame>(frame.caller);
}

}  // namespace kiln::ptx
