// How many cores this process may use: fewer than the machine has, in a container.

#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace kiln::compile {

/// The smaller of the affinity mask and the cgroup v2 CPU quota, rounded up; at
/// least 1. Read anew at each call (tens of microseconds). Thread-safe.
[[nodiscard]] unsigned usable_cores();

/// The smallest `cpu.max` on the way from the cgroup that `proc_self_cgroup` (the text
/// of /proc/self/cgroup) names up to `cgroup_root`, in whole cores rounded up. nullopt
/// where there is no limit, or no cgroup v2.
[[nodiscard]] std::optional<unsigned> cgroup_cores(
    const std::filesystem::path& cgroup_root, std::string_view proc_self_cgroup);

}  // namespace kiln::compile
