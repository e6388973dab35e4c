// A count that many threads raise at once without waiting for each other's cache lines.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kiln {

/// Thread safety: every method may run concurrently.
class StripedCounter {
 public:
  void add() { stripes_[stripe()].count.fetch_add(1, std::memory_order_relaxed); }

  /// What was added before the call, and perhaps some of what comes meanwhile.
  [[nodiscard]] std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const Stripe& stripe : stripes_)
      sum += stripe.count.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  static constexpr std::size_t kStripes = 16;
  static constexpr std::size_t kCacheLineBytes = 64;
  struct alignas(kCacheLineBytes) Stripe {
    std::atomic<std::uint64_t> count = 0;
  };

  /// Threads take them in turn.
  static std::size_t stripe() {
    static std::atomic<std::size_t> threads = 0;
    thread_local const std::size_t mine = threads++ % kStripes;
    return mine;
  }

  std::array<Stripe, kStripes> stripes_;
};

}  // namespace kiln
