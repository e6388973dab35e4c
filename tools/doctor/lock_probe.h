// Do locks work in a folder? Tried where nobody is harmed if the call never returns.

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

/// Takes a lock as the cache does, in the lock file of a random key, and gives it back.
/// A process of its own makes the calls, and is killed at the limit: where a lock call
/// that must not wait waits nevertheless, as on file systems whose server is gone, this
/// process goes on. One that cannot even be killed is left behind, with no descriptor
/// of ours.
[[nodiscard]] LockProbe probe_locks(const std::filesystem::path& folder,
                                    std::chrono::milliseconds limit);

}  // namespace kiln::tools
