// Whether this process is a child forked since: told in a nanosecond, where getpid()
// takes a system call.

#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>

namespace kiln {

/// One more in each forked child than in its parent. Thread-safe; costs one load.
[[nodiscard]] std::uint64_t fork_count();

/// The process that made this: whose threads, locks and connections these are. The pid
/// alone does not tell: a child in a pid namespace of its own is number 1 there, as its
/// parent is in a container. Nor does the count: a bare system call is not counted.
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
