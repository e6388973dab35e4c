// A count that is computed at its first use: that may cost more than a hit.

#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>

namespace kiln {

/// At least 1, and from the first get() on the same in all copies. Thread safety: get()
/// may run concurrently, also in a forked child: it takes no lock.
class LazyCount {
 public:
  // A number is a count. NOLINTNEXTLINE(google-explicit-constructor)
  LazyCount(unsigned count) : count_(known(std::max(1U, count))) {}
  /// Several threads may call `ask` at once; the first answer is kept.
  explicit LazyCount(std::function<unsigned()> ask)
      : ask_(std::move(ask)), count_(known(0)) {}

  [[nodiscard]] unsigned get() const {
    if (const unsigned count = *count_; count != 0)
      return count;
    unsigned nobody = 0;
    const unsigned answer = std::max(1U, ask_());
    return count_->compare_exchange_strong(nobody, answer) ? answer : nobody;
  }

 private:
  using Known = std::atomic<unsigned>;

  static std::shared_ptr<Known> known(unsigned count) {
    return std::make_shared<Known>(count);
  }

  std::function<unsigned()> ask_;
  std::shared_ptr<Known> count_;  // 0: not computed yet
};

}  // namespace kiln
