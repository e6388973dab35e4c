// The number of cores that this process may use. A container may allow fewer than all.

#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace kiln::compile {

/// The smaller of the affinity mask and the cgroup v2 CPU quota, rounded up; at
/// least 1. Read anew at each call (tens of microseconds). Thread-safe.
[[nodiscard]] unsigned usable_cores();

/// The smallest `cpu.max`, in whole cores rounded up, from `cgroup_root` down to the
/// cgroup that `proc_self_cgroup` (the text of /proc/self/cgroup) names. nullopt
/// without a limit or without cgroup v2.
[[nodiscard]] std::optional<unsigned> cgroup_cores(
    const std::filesystem::path& cgroup_root, std::string_view proc_self_cgroup);

}  // namespace kiln::compile
