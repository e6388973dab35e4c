// Counts and pointers of which each thread uses one of several copies, so that threads
// do not wait for each other's cache lines.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace kiln {

inline constexpr std::size_t kStripes = 16;
inline constexpr std::size_t kCacheLineBytes = 64;

/// Of the calling thread, less than kStripes: threads take them in turn.
inline std::size_t stripe_of_thread() {
  static std::atomic<std::size_t> threads = 0;
  thread_local const std::size_t mine = threads++ % kStripes;
  return mine;
}

/// A count that many threads raise at once.
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

/// One object with a reference count for each stripe. The object lives as long as this
/// and every pointer that get() gave. Thread safety: any number of threads may call
/// get() of one.
template <typename T>
class StripedPointer {
 public:
  /// `object` is not null.
  explicit StripedPointer(std::shared_ptr<T> object) {
    for (std::shared_ptr<T>& stripe : stripes_) {
      const auto counted = std::make_shared<Counted>(Counted{object});
      stripe = {counted, object.get()};
    }
  }

  [[nodiscard]] std::shared_ptr<T> get() const { return stripes_[stripe_of_thread()]; }

 private:
  // Of a cache line or more, so that the counts before two of them never share one.
  struct alignas(kCacheLineBytes) Counted {
    std::shared_ptr<T> object;
  };

  std::array<std::shared_ptr<T>, kStripes> stripes_;
};

}  // namespace kiln
