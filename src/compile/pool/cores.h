// The number of cores that this process may use. A container may allow fewer than all.

#pragma once

#include <filesystem>
#include <optional>

namespace kiln::compile {

/// The smaller of the affinity mask and the cgroups' CPU quota, rounded up; at least 1.
/// Read anew at each call (tens of microseconds). Thread-safe.
[[nodiscard]] unsigned usable_cores();

/// The smallest CPU quota of the cgroups of this process, v1 or v2, in whole cores
/// rounded up. nullopt: there is none. Tests replace the `root` of /proc and /sys.
[[nodiscard]] std::optional<unsigned> cgroup_cores(
    const std::filesystem::path& root = "/");

}  // namespace kiln::compile
