// Saves a job that killed or outlasted its worker, so that a person can run it again:
// <cache root>/repro/<time>-<hash>/ with the source and its headers, or the device's
// properties, and the command line.

#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "compile/protocol/job.h"
#include "compile/protocol/protocol.h"
#include "kiln/result.h"
#include "util/own_path.h"

namespace kiln::compile {

inline constexpr std::size_t kReproductionsKept = 20;

/// Writes the reproduction into `repro` and returns its folder. Files are 0600, folders
/// 0700; older reproductions beyond kReproductionsKept are removed (only names of our
/// own form). Errors: kIo, kUntrusted. The caller puts them into its message: a build's
/// own failure matters more. Safe among processes.
[[nodiscard]] Result<std::filesystem::path> save_reproduction(const OwnFolder& repro,
                                                              const Request& job);

/// The `kiln compile` line that runs `job` again from the reproduction in `folder`,
/// quoted for a POSIX shell.
[[nodiscard]] std::string reproduction_command(const std::filesystem::path& folder,
                                               const CompileJob& job);

}  // namespace kiln::compile
