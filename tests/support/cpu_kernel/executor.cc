#include "tests/support/cpu_kernel/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/cpu_kernel/cpu_kernel.h"

namespace kiln_cpu {
namespace {

namespace context = boost::context;

constexpr int kWarp = 32;
constexpr std::size_t kStackBytes = std::size_t{64} << 10;

/// One of a warp's collectives in progress. Two in turn suffice: nobody enters the next
/// but one before all have left this one.
struct Rendezvous {
  unsigned arrived = 0;
  std::array<float, kWarp> values{};
};

struct Warp {
  std::array<Rendezvous, 2> rendezvous;
  std::array<unsigned, kWarp> entered{};  // collectives that each lane has entered
};

enum class State : std::uint8_t { kReady, kAtBarrier, kEnded };

struct Thread {
  context::fiber fiber;  // where it goes on
  context::fiber caller;
  State state = State::kReady;
};

class Block {
 public:
  Block(const kiln::Geometry& geometry, long long number)
      : geometry_(geometry),
        number_(number),
        threads_(geometry.block[0]),
        warps_((geometry.block[0] + kWarp - 1) / kWarp) {}

  /// False: the threads that are left wait for each other.
  bool run(context::pooled_fixedsize_stack& stacks, Order order, std::mt19937& random,
           const std::function<void()>& kernel);

  void yield() {
    made_progress_ = made_progress_ || progressed_;
    progressed_ = false;
    Thread& self = threads_[current_];
    self.caller = std::move(self.caller).resume();
  }

  void barrier() {
    threads_[current_].state = State::kAtBarrier;
    progressed_ = true;
    yield();
  }

  float shuffle(unsigned mask, float value, int lanes) {
    const std::size_t lane = current_ % kWarp;
    Warp& warp = warps_[current_ / kWarp];
    Rendezvous& meeting = warp.rendezvous[warp.entered[lane]++ % 2];
    if ((meeting.arrived & mask) == mask) {
      meeting.arrived = 0;  // of the last but one collective
    }
    meeting.values[lane] = value;
    meeting.arrived |= 1U << lane;
    progressed_ = true;
    while ((meeting.arrived & mask) != mask) {
      yield();
    }
    progressed_ = true;
    return meeting.values[lane ^ static_cast<std::size_t>(lanes)];
  }

  void* shared(const void* tag, std::size_t bytes) {
    auto& memory = shared_[tag];
    if (memory.empty()) {
      memory.assign((bytes + 7) / 8, ~std::uint64_t{0});
    }
    return memory.data();
  }

  [[nodiscard]] std::size_t current() const { return current_; }
  [[nodiscard]] const kiln::Geometry& geometry() const { return geometry_; }
  [[nodiscard]] long long number() const { return number_; }

 private:
  const kiln::Geometry& geometry_;
  long long number_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::map<const void*, std::vector<std::uint64_t>> shared_;
  std::size_t current_ = 0;
  bool progressed_ = false;
  bool made_progress_ = false;
};

// Kernels find their block without an argument.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local Block* running_block = nullptr;

bool Block::run(context::pooled_fixedsize_stack& stacks, Order order,
                std::mt19937& random, const std::function<void()>& kernel) {
  for (Thread& thread : threads_) {
    thread.fiber = context::fiber(std::allocator_arg, stacks,
                                  [&kernel, &thread](context::fiber&& caller) {
                                    thread.caller = std::move(caller);
                                    kernel();
                                    thread.state = State::kEnded;
                                    return std::move(thread.caller);
                                  });
  }
  std::vector<std::size_t> turns(threads_.size());
  std::iota(turns.begin(), turns.end(), std::size_t{0});
  if (order == Order::kDescending) {
    std::reverse(turns.begin(), turns.end());
  }
  running_block = this;
  for (;;) {
    if (order == Order::kShuffled) {
      std::shuffle(turns.begin(), turns.end(), random);
    }
    made_progress_ = false;
    std::size_t ended = 0;
    std::size_t waiting = 0;
    for (const std::size_t turn : turns) {
      Thread& thread = threads_[turn];
      if (thread.state == State::kReady) {
        current_ = turn;
        thread.fiber = std::move(thread.fiber).resume();
        made_progress_ = made_progress_ || thread.state == State::kEnded;
      }
      ended += thread.state == State::kEnded ? 1U : 0U;
      waiting += thread.state == State::kAtBarrier ? 1U : 0U;
    }
    if (ended == threads_.size()) {
      return true;
    }
    if (ended + waiting == threads_.size()) {
      for (Thread& thread : threads_) {
        thread.state = thread.state == State::kAtBarrier ? State::kReady : thread.state;
      }
    } else if (!made_progress_) {
      return false;  // destroying the threads unwinds their stacks
    }
  }
}

}  // namespace

int thread() {
  return static_cast<int>(running_block->current());
}
int threads() {
  return static_cast<int>(running_block->geometry().block[0]);
}
long long block() {
  return running_block->number();
}
long long blocks() {
  return running_block->geometry().grid[0];
}
void sync_threads() {
  running_block->barrier();
}

float shuffle_xor(unsigned mask, float value, int lanes) {
  return running_block->shuffle(mask, value, lanes);
}

void* shared_array(const void* tag, std::size_t bytes) {
  return running_block->shared(tag, bytes);
}

float f16_to_float(unsigned bits) {
  const unsigned exponent = bits >> 10 & 0x1fU;
  const unsigned fraction = bits & 0x3ffU;
  float magnitude = 0;
  if (exponent == 0x1f) {
    magnitude = fraction == 0 ? std::numeric_limits<float>::infinity()
                              : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction + 0x400U),
                           static_cast<int>(exponent) - 25);
  }
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

unsigned float_to_f16(float value) {
  const unsigned sign = std::bit_cast<unsigned>(value) >> 16 & 0x8000U;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) {
    return 0x7fff;  // what cvt gives
  }
  if (magnitude >= 65520.0F) {
    return sign | 0x7c00U;  // half way from the largest to the next power of two
  }
  // In units of the last place, which is 2^-24 below 2^-14; nearbyint rounds to even.
  const int exponent = magnitude < 0x1p-14F ? -14 : std::ilogb(magnitude);
  const auto units =
      static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return sign | (units + (static_cast<unsigned>(exponent + 14) << 10));
}

float exp2_approx(float x) {
  const float value = std::exp2(x);
  return value < 0x1p-126F ? 0.0F : value;
}

kiln::Result<void> launch(const kiln::Geometry& geometry, Order order,
                          const std::function<void()>& kernel) {
  if (geometry.grid[1] * geometry.grid[2] * geometry.block[1] * geometry.block[2] !=
      1) {
    return kiln::fail(kiln::ErrorCode::kInvalidArgument,
                      "launch on the CPU: only grids and blocks in x");
  }
  context::pooled_fixedsize_stack stacks(kStackBytes, geometry.block[0]);
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same schedules every time
  for (long long number = 0; number < geometry.grid[0]; ++number) {
    Block block(geometry, number);
    const bool ended = block.run(stacks, order, random, kernel);
    running_block = nullptr;
    if (!ended) {
      return kiln::fail(
          kiln::ErrorCode::kCancelled,
          fmt::format(
              "block {}: its threads wait for each other for ever: a barrier or a "
              "shuffle that some of them do not reach",
              number));
    }
  }
  return {};
}

}  // namespace kiln_cpu
