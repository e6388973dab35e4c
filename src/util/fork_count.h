// Detects a fork. fork_count() takes a nanosecond; OwnerProcess also makes the system
// call getpid().

#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>

namespace kiln {

/// Each forked child has one more than its parent. Thread-safe; costs one load.
[[nodiscard]] std::uint64_t fork_count();

/// The process that created this object, which owns the threads, locks and connections
/// beside it. The pid alone is not enough: a child in a new pid namespace is pid 1, and
/// so may be its parent in a container. Nor is the count: a fork by a raw system call
/// is not counted.
class OwnerProcess {
 public:
  [[nodiscard]] bool is_this() const {
    return forks_ == fork_count() && pid_ == ::getpid();
  }

 private:
  std::uint64_t forks_ = fork_count();
  pid_t pid_ = ::getpid();
};

}  // namespace kiln
