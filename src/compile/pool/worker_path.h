// Where the executables are that build: kiln-worker and kiln-plan-worker.

#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "kiln/result.h"

namespace kiln::compile {

/// What the caller knows. `environment` is what KILN_WORKER names; a caller in a
/// set-uid program leaves it empty.
struct WorkerSearch {
  std::string name = "kiln-worker";  // of the file
  std::optional<std::filesystem::path> option;
  std::optional<std::filesystem::path> environment;
};

/// The executable that is started: the option, else KILN_WORKER, else the first there
/// is of: beside this library; where it is installed, seen from here (../libexec/kiln,
/// if it was not configured otherwise); beside the running program.
/// A path that was given must exist; it is never silently replaced. Errors:
/// kUnavailable, with every place that was looked at.
[[nodiscard]] Result<std::filesystem::path> find_worker(const WorkerSearch& search);

/// The file that holds this code: the shared library, or the program where it is linked
/// in. Named in the message when a worker of another build is refused.
[[nodiscard]] std::filesystem::path this_library();

}  // namespace kiln::compile
