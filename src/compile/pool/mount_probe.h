// Asks a mount whether it answers, by a kiln-worker: a process can be given up, and a
// thread that hangs in a dead mount may keep its process from ending.

#pragma once

#include <chrono>
#include <filesystem>

namespace kiln::compile {

/// Starts `worker` to look at `place` on `mount`. False if it has not come back after
/// `limit`; true also where it cannot be started, since then nothing is known.
[[nodiscard]] bool mount_answers(const std::filesystem::path& worker,
                                 const std::filesystem::path& mount,
                                 const std::filesystem::path& place,
                                 std::chrono::milliseconds limit);

}  // namespace kiln::compile
