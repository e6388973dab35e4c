#include "tests/support/cpu_kernel/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

namespace kiln_cpu {
namespace {

constexpr auto kLanes = static_cast<std::size_t>(kWarpLanes);

std::string to_string(const Site& site) {
  return fmt::format("the barrier of {}:{}", site.file, site.line);
}

std::vector<std::size_t> numbers(std::size_t count, Order order, std::mt19937& random) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (order == Order::kDescending) {
    std::reverse(all.begin(), all.end());
  } else if (order == Order::kShuffled) {
    std::shuffle(all.begin(), all.end(), random);
  }
  return all;
}

}  // namespace

bool operator==(const Site& a, const Site& b) {
  return a.line == b.line && std::strcmp(a.file, b.file) == 0;
}

Block::Block(const kiln::Geometry& geometry, long long number, SharedMemory& shared)
    : geometry_(geometry),
      number_(number),
      shared_(shared),
      threads_(geometry.block[0]),
      warps_((geometry.block[0] + kLanes - 1) / kLanes) {
  Stacks::instance().reserve(threads_.size());
}

std::optional<std::string> Block::run(Order order, std::mt19937& random,
                                      const std::function<void()>& kernel) {
  shared_.begin_block();
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    threads_[i].fiber.start(Stacks::instance().at(i), kernel);
  }
  while (count(State::kEnded) < threads_.size()) {
    for (const std::size_t warp : numbers(warps_.size(), order, random)) {
      run_warp(warp, order, random);
      if (stopped()) {
        return problem();
      }
    }
    if (count(State::kReady) != 0) {
      continue;
    }
    if (count(State::kAtCollective) != 0) {
      return deadlock();
    }
    if (auto divergence = release_barrier()) {
      return divergence;
    }
  }
  return std::nullopt;
}

/// Until none of its lanes can go on; in shuffled order a while.
void Block::run_warp(std::size_t warp, Order order, std::mt19937& random) {
  const std::size_t first = warp * kLanes;
  const std::size_t lanes = std::min(kLanes, threads_.size() - first);
  const auto is_ready = [](const Thread& t) { return t.state == State::kReady; };
  const auto begin = threads_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = begin + static_cast<std::ptrdiff_t>(lanes);
  std::size_t rounds = order == Order::kShuffled ? random() % 4 : ~std::size_t{0};
  while (rounds-- != 0 && !stopped() && std::any_of(begin, end, is_ready)) {
    run_lanes(warp, numbers(lanes, order, random));
  }
}

void Block::run_lanes(std::size_t warp, const std::vector<std::size_t>& lanes) {
  for (const std::size_t lane : lanes) {
    const std::size_t thread = warp * kLanes + lane;
    if (threads_[thread].state == State::kReady && !stopped()) {
      step(thread);
    }
  }
}

void Block::step(std::size_t thread) {
  current_ = thread;
  steps_ = steps_ + 1;
  in_kernel_ = true;
  threads_[thread].fiber.resume();
  in_kernel_ = false;
  if (threads_[thread].fiber.ended()) {
    threads_[thread].state = State::kEnded;
  }
}

void Block::barrier(const Site& site) {
  Thread& self = threads_[current_];
  self.state = State::kAtBarrier;
  self.site = site;
  self.fiber.yield();
}

/// Everybody left is at the barrier: at the same one?
std::optional<std::string> Block::release_barrier() {
  const auto waits = [](const Thread& t) { return t.state == State::kAtBarrier; };
  const auto first = std::find_if(threads_.begin(), threads_.end(), waits);
  const auto other = std::find_if(first, threads_.end(), [&](const Thread& t) {
    return waits(t) && !(t.site == first->site);
  });
  if (other != threads_.end()) {
    return fmt::format("block {}: divergent barriers: {}; {}", number_,
                       whereabouts(static_cast<std::size_t>(first - threads_.begin())),
                       whereabouts(static_cast<std::size_t>(other - threads_.begin())));
  }
  for (Thread& thread : threads_) {
    thread.state = waits(thread) ? State::kReady : thread.state;
  }
  return std::nullopt;
}

unsigned Block::collective(const Visit& visit) {
  steps_ = steps_ + 1;
  Warp& warp = warps_[current_ / kLanes];
  const std::size_t first = current_ / kLanes * kLanes;
  const int lane = static_cast<int>(current_ % kLanes);
  auto going_on = warp.join(lane, visit);
  if (!going_on) {
    fail(going_on.error().message);
    return 0;
  }
  if (*going_on == 0) {
    threads_[current_].state = State::kAtCollective;
    threads_[current_].fiber.yield();
    return warp.result(lane);
  }
  for (unsigned lanes = *going_on; lanes != 0; lanes &= lanes - 1) {
    threads_[first + static_cast<std::size_t>(std::countr_zero(lanes))].state =
        State::kReady;
  }
  return warp.result(lane);
}

void Block::copy_async(const Copy& copy) {
  shared_.poison(copy.to, CopyQueue::kBytes);
  threads_[current_].copies.begin(copy);
}

void Block::copy_wait(int pending) {
  threads_[current_].copies.wait(static_cast<std::uint64_t>(pending));
}

void Block::fail(const std::string& what) {
  problem_ = fmt::format("block {}, thread {}: {}", number_, current_, what);
}

void Block::leave_if_failed() {
  if (problem_) {
    threads_[current_].fiber.yield();
  }
}

/// Makes no text here: it may have interrupted an allocation.
bool Block::take_fault(const Fault& fault) {
  if (!in_kernel_) {
    return false;
  }
  if (fault.kind == Fault::Kind::kClock && steps_at_tick_ != steps_) {
    steps_at_tick_ = steps_;
    return true;
  }
  in_kernel_ = false;
  fault_ = fault;
  threads_[current_].fiber.yield();
  return true;
}

std::string Block::problem() const {
  if (!fault_) {
    return *problem_;
  }
  const std::string who = fmt::format("block {}, thread {}", number_, current_);
  if (fault_->kind == Fault::Kind::kClock) {
    return who + ": runs without end";
  }
  if (Stacks::instance().overflows(current_, fault_->address)) {
    return who + ": needs more stack than a fiber has";
  }
  const char* const does = fault_->kind == Fault::Kind::kRead    ? "reads"
                           : fault_->kind == Fault::Kind::kWrite ? "writes"
                                                                 : "reads or writes";
  return fmt::format("{} {} {}", who, does,
                     GuardedMemory::describe_any(fault_->address));
}

std::size_t Block::count(State state) const {
  return static_cast<std::size_t>(
      std::count_if(threads_.begin(), threads_.end(),
                    [&](const Thread& thread) { return thread.state == state; }));
}

/// Of the first thread at a collective, whom it waits for; and a thread at the barrier.
std::string Block::deadlock() const {
  const auto find = [&](State state) {
    return static_cast<std::size_t>(
        std::find_if(threads_.begin(), threads_.end(),
                     [&](const Thread& t) { return t.state == state; }) -
        threads_.begin());
  };
  const std::size_t waiter = find(State::kAtCollective);
  const std::size_t first = waiter / kLanes * kLanes;
  const Warp& warp = warps_[waiter / kLanes];
  const unsigned missing =
      warp.visit(static_cast<int>(waiter % kLanes)).mask & ~warp.waiting();
  return fmt::format(
      "block {}: threads wait for each other for ever: {}, for {}", number_,
      whereabouts(waiter),
      whereabouts(first + static_cast<std::size_t>(std::countr_zero(missing))));
}

std::string Block::whereabouts(std::size_t thread) const {
  std::string who = fmt::format("thread {} ", thread);
  if (thread >= threads_.size()) {
    return who + "is not in the block";
  }
  switch (threads_[thread].state) {
    case State::kReady:
      return who + "can go on";
    case State::kAtBarrier:
      return who + "waits at " + to_string(threads_[thread].site);
    case State::kAtCollective:
      return who + "waits at " +
             to_string(
                 warps_[thread / kLanes].visit(static_cast<int>(thread % kLanes)));
    case State::kEnded:
      return who + "has ended";
  }
  return who;
}

}  // namespace kiln_cpu
