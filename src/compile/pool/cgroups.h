// The cgroups of this process, v1 and v2, as files below a root that tests replace.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

namespace kiln::compile {

/// Calls `look` with each folder whose limits of `controller` ("cpu", "memory") bind
/// this process: its own cgroup's and all its ancestors', of both versions. One that a
/// container hides is not there. Thread-safe.
void for_each_cgroup(const std::filesystem::path& root, std::string_view controller,
                     const std::function<void(const std::filesystem::path&)>& look);

/// The number at the start of the file or, of a table, behind `name`. nullopt: no such
/// file or line, or another word there ("max", "-1"). Thread-safe.
[[nodiscard]] std::optional<std::uint64_t> number_in(const std::filesystem::path& file,
                                                     std::string_view name = {});

}  // namespace kiln::compile
