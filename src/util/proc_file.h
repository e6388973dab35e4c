// Files of /proc and of cgroups: their size reads as 0, so util/read_file.h cannot.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace kiln {

/// The first 64 KiB of the file, or nullopt if it cannot be read: a process that has
/// ended, a kernel without that file. Thread-safe.
[[nodiscard]] std::optional<std::string> read_proc_file(
    const std::filesystem::path& path);

/// The resident bytes of a process, from the content of its statm; 0 if it has none.
[[nodiscard]] std::uint64_t resident_bytes_in(std::string_view statm);

}  // namespace kiln
