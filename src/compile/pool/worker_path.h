// Finds the worker executables: kiln-worker and kiln-plan-worker.

#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "kiln/result.h"

namespace kiln::compile {

/// The inputs of the search. `environment` is the value of KILN_WORKER; a caller in a
/// set-uid program leaves it empty.
struct WorkerSearch {
  std::string name = "kiln-worker";  // of the executable
  std::optional<std::filesystem::path> option;
  std::optional<std::filesystem::path> environment;
};

/// The executable to start: the option, else KILN_WORKER, else the first that exists of
/// these: beside this library; the install location relative to this library
/// (../libexec/kiln, unless configured otherwise); beside the running program. An
/// option or KILN_WORKER must name an executable; it is never silently replaced.
/// Errors: kUnavailable, naming every path that was tried.
[[nodiscard]] Result<std::filesystem::path> find_worker(const WorkerSearch& search);

/// The file that contains this code: the shared library, or the program if Kiln is
/// linked statically. Named in the message that refuses a worker from another build.
[[nodiscard]] std::filesystem::path this_library();

}  // namespace kiln::compile
