#include "tests/support/cpu_kernel/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace kiln_cpu {

SharedMemory::SharedMemory(Side exact, std::byte poison, std::size_t dynamic_bytes)
    : exact_(exact),
      poison_(poison),
      dynamic_("the dynamic shared memory", dynamic_bytes,
               {.exact = exact, .past_boundary = 0}) {}

void SharedMemory::begin_block() {
  poison(dynamic_);
  for (const auto& [tag, memory] : arrays_) {
    poison(*memory);
  }
}

void* SharedMemory::array(const void* tag, const char* name, std::size_t bytes) {
  auto& memory = arrays_[tag];
  if (memory == nullptr) {
    memory = std::make_unique<GuardedMemory>(fmt::format("the shared array '{}'", name),
                                             bytes, Placement{.exact = exact_});
    poison(*memory);
  }
  return memory->size() == bytes ? memory->data() : nullptr;
}

bool SharedMemory::holds(const void* at, std::size_t bytes) const {
  return dynamic_.holds(at, bytes) ||
         std::any_of(arrays_.begin(), arrays_.end(),
                     [&](const auto& array) { return array.second->holds(at, bytes); });
}

void SharedMemory::poison(void* at, std::size_t bytes) const {
  std::memset(at, static_cast<int>(poison_), bytes);
}

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
