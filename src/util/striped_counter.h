// A count that many threads raise at once without waiting for each other's cache lines.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "util/stripes.h"

namespace kiln {

/// Thread safety: every method may run concurrently.
class StripedCounter {
 public:
  void add() {
    stripes_[stripe_of_thread()].count.fetch_add(1, std::memory_order_relaxed);
  }

  /// What was added before the call, and perhaps some of what comes meanwhile.
  [[nodiscard]] std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const Stripe& stripe : stripes_)
      sum += stripe.count.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  struct alignas(kCacheLineBytes) Stripe {
    std::atomic<std::uint64_t> count = 0;
  };

  std::array<Stripe, kStripes> stripes_;
};

}  // namespace kiln
