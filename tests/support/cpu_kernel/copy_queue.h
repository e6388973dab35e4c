// The copies to shared memory that one thread of a kernel has begun and not waited for.

#pragma once

#include <cstdint>
#include <deque>

namespace kiln_cpu {

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
