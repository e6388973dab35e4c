#include "tests/support/cpu_kernel/copy_queue.h"

#include <cstring>

namespace kiln_cpu {

void CopyQueue::wait(std::uint64_t pending) {
  while (!waiting_.empty() && waiting_.front().group + pending < groups_) {
    const Copy copy = waiting_.front().copy;
    waiting_.pop_front();
    if (copy.is_there) {
      // Where nothing is there, it is the first byte that a report names.
      [[maybe_unused]] const unsigned char first =
          *static_cast<const volatile unsigned char*>(copy.from);
      std::memcpy(copy.to, copy.from, kBytes);
    } else {
      std::memset(copy.to, 0, kBytes);
    }
  }
}

}  // namespace kiln_cpu
