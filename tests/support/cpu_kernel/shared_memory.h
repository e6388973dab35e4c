// A block's shared memory: each array in guarded pages of its own, poisoned when a
// block begins; and the copies to it that a thread has begun and not waited for.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
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

struct Copy {
  void* to;
  const void* from;
  bool is_there;  // else zeros
};

/// A copy happens, the reading too, in the wait that covers its group and no sooner:
/// who waits for too little finds what was there when it began. Thread safety: none.
class CopyQueue {
 public:
  static constexpr std::size_t kBytes = 16;  // of each

  void begin(const Copy& copy) { waiting_.push_back({copy, groups_}); }
  /// Those begun since the last commit are a group, which may be empty.
  void commit() { ++groups_; }
  /// Makes the copies of all groups but the `pending` newest, in the order begun. A
  /// fault in one of them may end it.
  void wait(std::uint64_t pending);

 private:
  struct Waiting {
    Copy copy;
    std::uint64_t group;
  };
  std::deque<Waiting> waiting_;
  std::uint64_t groups_ = 0;  // committed
};

}  // namespace kiln_cpu
