// The files that a running process has mapped as code.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "kiln/result.h"
#include "util/file_range.h"

namespace kiln::binaries {

struct MappedFile {
  std::string path;        // the process's name for it
  Result<FileRange> file;  // or why it cannot be read
};

/// Each file that `pid` has mapped executable, once, in order of their addresses: also
/// in a mount namespace of the process, and those deleted meanwhile. Errors: kNotFound
/// (no such process); kUnavailable (one of another user).
[[nodiscard]] Result<std::vector<MappedFile>> mapped_files(pid_t pid);

}  // namespace kiln::binaries
