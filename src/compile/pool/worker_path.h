// Finds the executables of Kiln that work for this process, kiln-worker,
// kiln-plan-worker and kiln-remote, and the standard headers, which lie beside them.

#pragma once

#include <filesystem>
#include <string>

#include "kiln/result.h"

namespace kiln::compile {

struct WorkerSearch {
  std::string name = "kiln-worker";         // of the executable
  std::filesystem::path path = {};          // explicit; "" for none
  std::string_view set_by = "KILN_WORKER";  // the setting that named it
  /// What to do where there is none.
  std::string_view remedy =
      "reinstall Kiln, or set KILN_WORKER to the path of its kiln-worker";
};

/// The executable to start: `path`, which must be one and is never silently replaced;
/// without it the first that exists of these: beside this library; the install location
/// relative to this library (../libexec/kiln, unless configured otherwise); beside the
/// running program. Errors: kUnavailable, naming every path that was tried.
[[nodiscard]] Result<std::filesystem::path> find_worker(const WorkerSearch& search);

/// Kiln's folder of standard headers, absolute: beside `worker` if a setting names one,
/// else in the first of the places where a worker is looked for; "" if there is none.
[[nodiscard]] std::filesystem::path find_standard_headers(
    const std::filesystem::path& worker = {});

}  // namespace kiln::compile
