// A count that is computed at its first use: that may cost more than a hit. It may have
// a bound that changes with time.

#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>

namespace kiln {

/// At least 1, and from the first get() on the same in all copies. Thread safety: get()
/// and now() may run concurrently, also in a forked child: they take no lock.
class LazyCount {
 public:
  // A number is a count. NOLINTNEXTLINE(google-explicit-constructor)
  LazyCount(unsigned count) : count_(known(std::max(1U, count))) {}
  /// Several threads may call `compute` at once; the first count is kept.
  explicit LazyCount(std::function<unsigned()> compute)
      : compute_(std::move(compute)), count_(known(0)) {}

  /// This count, and now() at most `bound()` of that moment.
  [[nodiscard]] LazyCount bounded_by(std::function<unsigned()> bound) const {
    LazyCount bounded = *this;
    bounded.bound_ = std::move(bound);
    return bounded;
  }

  /// At least 1, and at most get().
  [[nodiscard]] unsigned now() const {
    return bound_ ? std::clamp(bound_(), 1U, get()) : get();
  }

  [[nodiscard]] unsigned get() const {
    if (const unsigned count = *count_; count != 0)
      return count;
    unsigned unset = 0;
    const unsigned count = std::max(1U, compute_());
    return count_->compare_exchange_strong(unset, count) ? count : unset;
  }

 private:
  using Known = std::atomic<unsigned>;

  static std::shared_ptr<Known> known(unsigned count) {
    return std::make_shared<Known>(count);
  }

  std::function<unsigned()> compute_;
  std::function<unsigned()> bound_;  // empty: there is none
  std::shared_ptr<Known> count_;     // 0: not computed yet
};

}  // namespace kiln
