#include "tests/support/cpu_kernel/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tests/support/cpu_kernel/block.h"
#include "tests/support/cpu_kernel/cpu_kernel.h"
#include "tests/support/cpu_kernel/matrices.h"

namespace kiln_cpu {
namespace {

// Kernels find their block without an argument.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
Block* running_block = nullptr;

bool take_fault(const Fault& fault) {
  return running_block != nullptr && running_block->take_fault(fault);
}

/// NaN, the largest numbers and small negative ones, as floats: what no kernel wrote
/// shows in a sum, in a maximum and in an integer.
std::byte poison_of(Order order) {
  return order == Order::kAscending    ? std::byte{0xff}
         : order == Order::kDescending ? std::byte{0x7f}
                                       : std::byte{0xa5};
}

class BlockOrder {
 public:
  BlockOrder(long long first, long long end, Order order, std::mt19937& random)
      : first_(first), end_(end), order_(order) {
    if (order == Order::kShuffled) {
      shuffled_.resize(static_cast<std::size_t>(end - first));
      std::iota(shuffled_.begin(), shuffled_.end(), first);
      std::shuffle(shuffled_.begin(), shuffled_.end(), random);
    }
  }
  [[nodiscard]] long long at(long long turn) const {
    switch (order_) {
      case Order::kAscending:
        return first_ + turn;
      case Order::kDescending:
        return end_ - 1 - turn;
      case Order::kShuffled:
        return shuffled_[static_cast<std::size_t>(turn)];
    }
    return first_;
  }

 private:
  long long first_;
  long long end_;
  Order order_;
  std::vector<long long> shuffled_;
};

std::string described(const void* at) {
  return GuardedMemory::describe_any(reinterpret_cast<std::uintptr_t>(at));
}

void require_shared(std::string_view who, const void* at, std::size_t bytes) {
  if (!running_block->shared().holds(at, bytes)) {
    running_block->fail(fmt::format("{}: not {} bytes of shared memory: {}", who, bytes,
                                    described(at)));
    running_block->leave_if_failed();
  }
}

/// The whole warp's work on its lanes' `operands`.
void together(Collective how, void* operands) {
  std::ignore = running_block->collective(
      {.what = how, .mask = 0xffffffffU, .operands = operands});
  running_block->leave_if_failed();
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

void sync_threads(const char* file, int line) {
  running_block->barrier({file, line});
}

unsigned collective(Collective what, unsigned mask, unsigned value, int argument) {
  const unsigned result = running_block->collective({what, mask, value, argument});
  running_block->leave_if_failed();
  return result;
}

void matrix_load(Collective how, unsigned (&words)[4], const void* row) {
  require_aligned(row, sizeof(MatrixRow::bytes));
  require_shared(to_string(how), row, sizeof(MatrixRow::bytes));
  MatrixRow mine{.bytes = {}, .words = words};
  std::memcpy(mine.bytes.data(), row, sizeof(mine.bytes));
  together(how, &mine);
}

void multiply(Collective how, float (&d)[4], const unsigned* a, const unsigned* b) {
  MatrixFragments mine{.d = d, .a = a, .b = b};
  together(how, &mine);
}

void copy_async(void* to_shared, const void* from, bool is_there) {
  require_aligned(to_shared, CopyQueue::kBytes);
  require_aligned(from, CopyQueue::kBytes);
  require_shared("copy_async", to_shared, CopyQueue::kBytes);
  if (is_there && running_block->shared().holds(from, 1)) {
    running_block->fail(
        fmt::format("copy_async: from {}, which is shared memory", described(from)));
    running_block->leave_if_failed();
  }
  running_block->copy_async({to_shared, from, is_there});
}
void copy_commit() {
  running_block->copy_commit();
}
void copy_wait(int pending) {
  running_block->copy_wait(pending);
}

void* shared_array(const SharedTag* tag, std::size_t bytes) {
  void* const array = running_block->shared().array(tag, tag->name, bytes);
  if (array == nullptr) {
    running_block->fail(
        fmt::format("the shared array '{}' has two different sizes", tag->name));
    running_block->leave_if_failed();
  }
  return array;
}

void* dynamic_shared() {
  return running_block->shared().dynamic();
}

void report_misaligned(const void* at, std::size_t bytes) {
  running_block->fail(
      fmt::format("misaligned access of {} bytes, {}", bytes, described(at)));
  running_block->leave_if_failed();
}

kiln::Result<void> launch(const kiln::Geometry& geometry, const LaunchOptions& options,
                          const std::function<void()>& kernel) {
  using kiln::ErrorCode;
  if (geometry.grid[1] * geometry.grid[2] * geometry.block[1] * geometry.block[2] !=
      1) {
    return kiln::fail(ErrorCode::kInvalidArgument,
                      "launch on the CPU: only grids and blocks in x");
  }
  SharedMemory shared(options.order == Order::kDescending ? Side::kBegin : Side::kEnd,
                      poison_of(options.order), geometry.shared_bytes);
  const FaultSignals signals(take_fault, options.longest_step / 2);
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same schedules every time
  const long long grid = geometry.grid[0];
  const long long first = std::min(options.first_block, grid);
  const long long end = first + std::min(options.most_blocks, grid - first);
  const BlockOrder order(first, end, options.order, random);
  for (long long turn = 0; turn < end - first; ++turn) {
    Block block(geometry, order.at(turn), shared);
    running_block = &block;
    const auto problem = block.run(options.order, random, kernel);
    running_block = nullptr;
    if (problem) {
      return kiln::fail(ErrorCode::kInvalidArgument, *problem);
    }
  }
  if (const auto damage = GuardedMemory::first_damage()) {
    return kiln::fail(ErrorCode::kInvalidArgument, *damage);
  }
  return {};
}

}  // namespace kiln_cpu
