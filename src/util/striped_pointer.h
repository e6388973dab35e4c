// One object with a reference count for each stripe: threads that take and drop
// pointers to it at once do not meet on a count.

#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include "util/stripes.h"

namespace kiln {

/// The object lives as long as this and every pointer that get() gave.
/// Thread safety: any number of threads may call get() of one.
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
