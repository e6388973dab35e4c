// Saves a job that crashed its worker or exceeded a limit, so that a person can run it
// again: <cache root>/repro/<time>-<hash>/ holds the command line and either the source
// with its headers or the device's properties.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "compile/protocol/job.h"
#include "compile/protocol/protocol.h"
#include "kiln/result.h"
#include "util/own_path.h"

namespace kiln::compile {

inline constexpr std::size_t kReproductionsKept = 20;
inline constexpr std::uint64_t kReproductionBytesKept = 256U << 20U;

/// Writes the reproduction into `repro` and returns its folder. Files are 0600, folders
/// 0700. Removes the oldest reproductions beyond kReproductionsKept and, but for the
/// new one, beyond `bytes_kept` (only folders with names of our form). Errors: kIo,
/// kUntrusted. The caller adds them to its own message, because the build's failure
/// matters more. Safe to call from several processes.
[[nodiscard]] Result<std::filesystem::path> save_reproduction(
    const OwnFolder& repro, const Request& job,
    std::uint64_t bytes_kept = kReproductionBytesKept);

/// The `kiln compile` line that runs `job` again from the reproduction in `folder`,
/// quoted for a POSIX shell.
[[nodiscard]] std::string reproduction_command(const std::filesystem::path& folder,
                                               const CompileJob& job);

}  // namespace kiln::compile
