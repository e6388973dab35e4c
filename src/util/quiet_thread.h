// Threads of the library inside a host program: they block all signals.

#pragma once

#include <functional>
#include <optional>
#include <thread>

namespace kiln {

enum class Thread : bool { kJoinable, kDetached };

/// Runs `body` in a thread with every signal blocked. nullopt, and a line in the log,
/// if the system has no thread left, or no memory. A detached thread is returned as an
/// empty std::thread.
[[nodiscard]] std::optional<std::thread> start_quiet_thread(std::function<void()> body,
                                                            Thread how);

}  // namespace kiln
