// Which bytes of the devices' memory somebody wrote, where that is asked for (checks
// "unset"). Thread safety: every function may run concurrently.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "util/mutex.h"

namespace kiln::simulated {

class Written {
 public:
  using Bytes = std::vector<std::uint8_t>;  // not 0 where it was written

  /// Of memory that is new; watched until it is freed.
  void watch(std::uint64_t begin, std::size_t size);
  void forget(std::uint64_t begin);
  void note(std::uint64_t at, std::size_t size);
  /// Those of the memory that begins there; null where it is not watched.
  [[nodiscard]] std::shared_ptr<Bytes> find(std::uint64_t begin);

 private:
  Mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Bytes>> all_ KILN_GUARDED_BY(mutex_);
};

/// Of the process.
[[nodiscard]] Written& written();

}  // namespace kiln::simulated
