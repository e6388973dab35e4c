// A block's shared memory: each array in guarded pages of its own, poisoned when a
// block begins.

#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "tests/support/cpu_kernel/guarded_memory.h"

namespace kiln_cpu {

/// Serves the blocks of one launch one after the other. Thread safety: none.
class SharedMemory {
 public:
  /// `exact`: the end of every array that lies at an inaccessible page. `poison` is
  /// what each byte is at first; another one in another run shows what was never
  /// written.
  SharedMemory(Side exact, std::byte poison, std::size_t dynamic_bytes);

  void begin_block();

  /// The array of `tag`, or null where it was another number of bytes before.
  [[nodiscard]] void* array(const void* tag, const char* name, std::size_t bytes);
  [[nodiscard]] void* dynamic() { return dynamic_.data(); }

  /// Whether one of the arrays, or the dynamic memory, has all these bytes.
  [[nodiscard]] bool holds(const void* at, std::size_t bytes) const;
  /// Makes them what they were when the block began.
  void poison(void* at, std::size_t bytes) const;

 private:
  void poison(GuardedMemory& memory) const { poison(memory.data(), memory.size()); }

  const Side exact_;
  const std::byte poison_;
  GuardedMemory dynamic_;
  std::map<const void*, std::unique_ptr<GuardedMemory>> arrays_;
};

}  // namespace kiln_cpu
