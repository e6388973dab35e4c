// Whether this process is a child forked since: told in a nanosecond, where getpid()
// takes a system call.

#pragma once

#include <cstdint>

namespace kiln {

/// One more in each forked child than in its parent. The first call of a process begins
/// to count. Thread-safe; costs one load afterwards.
[[nodiscard]] std::uint64_t fork_count();

}  // namespace kiln
