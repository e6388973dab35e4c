// The processes that rows of kiln-bench-library start.

#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "kiln/kiln.h"

namespace kiln::bench {

/// ROOT: opens a service and gets one kernel, a hit.
inline constexpr std::string_view kFirstGetChild = "first-get";
/// OBJECT: prints the seconds for a read and a hash of that file, and for the load of
/// the cubin in it on a device of the simulated driver that was started before.
inline constexpr std::string_view kReadAndLoadChild = "read-and-load";

/// On the simulated driver, with its cache in `root`. Errors: as Service::open.
[[nodiscard]] Result<Service> open_library(const std::string& root);

/// In lib beside this program's folder, in a build and wherever both were copied to.
[[nodiscard]] std::filesystem::path simulated_driver();

/// The kernel that all rows get.
[[nodiscard]] Request library_request();

}  // namespace kiln::bench
