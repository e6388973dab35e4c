// Counters and pointers in several copies. Each thread uses one copy, so that threads
// do not contend for a cache line.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace kiln {

inline constexpr std::size_t kStripes = 16;
inline constexpr std::size_t kCacheLineBytes = 64;

/// The stripe of the calling thread, less than kStripes, assigned round-robin.
inline std::size_t stripe_of_thread() {
  static std::atomic<std::size_t> threads = 0;
  thread_local const std::size_t mine = threads++ % kStripes;
  return mine;
}

/// A counter that many threads increment at once.
/// Thread safety: every method may run concurrently.
class StripedCounter {
 public:
  void add() {
    stripes_[stripe_of_thread()].count.fetch_add(1, std::memory_order_relaxed);
  }

  /// All adds before the call, and perhaps some concurrent ones.
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

/// One object with a reference count for each stripe. The object lives until this and
/// every pointer from get() are gone. Thread safety: get() may run concurrently.
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
  // At least a cache line, so that two reference counts never share one.
  struct alignas(kCacheLineBytes) Counted {
    std::shared_ptr<T> object;
  };

  std::array<std::shared_ptr<T>, kStripes> stripes_;
};

}  // namespace kiln
