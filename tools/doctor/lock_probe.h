// Tests whether locks work in a folder, in a child process: the call may never return.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace kiln::tools {

enum class LockAnswer : std::uint8_t {
  kWork,
  kRefused,   // the call fails; `error` says why
  kNoAnswer,  // the call did not return in time
};

/// "work", "refused", "no answer".
[[nodiscard]] std::string_view to_string(LockAnswer answer);

struct LockProbe {
  LockAnswer answer = LockAnswer::kWork;
  int error = 0;  // a positive errno, of kRefused
  std::chrono::milliseconds took{};
};

/// Takes a lock as the cache does, in the lock file of a random key, and releases it. A
/// child process makes the calls and is killed at the limit: on a file system whose
/// server is gone even a non-blocking lock call can block, and this process must go on.
/// A child that cannot be killed is left behind, with no descriptor of ours.
[[nodiscard]] LockProbe probe_locks(const std::filesystem::path& folder,
                                    std::chrono::milliseconds limit);

}  // namespace kiln::tools
