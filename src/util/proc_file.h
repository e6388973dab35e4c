// Files of /proc and of cgroups: their size reads as 0, so util/read_file.h cannot.

#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace kiln {

/// The first 64 KiB of the file, or nullopt if it cannot be read: a process that has
/// ended, a kernel without that file. Thread-safe.
[[nodiscard]] std::optional<std::string> read_proc_file(
    const std::filesystem::path& path);

}  // namespace kiln
