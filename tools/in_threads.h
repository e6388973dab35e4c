// The items of a run, several at a time.

#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>

namespace kiln::tools {

/// Calls `handle` with each number below `count`, in up to `threads` threads, of which
/// the caller's is one, in case the system can start no other. After a stop it begins
/// no further one.
void in_threads(std::size_t threads, std::size_t count, const std::stop_token& stop,
                const std::function<void(std::size_t)>& handle);

}  // namespace kiln::tools
