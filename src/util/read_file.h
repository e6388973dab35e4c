// Reads a whole file into memory; no mmap, so that a truncation cannot raise SIGBUS.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln {

/// The bytes of a regular file up to its end, whatever size the file system says; or
/// nullopt if there is none. Thread-safe.
/// Errors: kIo; kResourceLimit above `max_bytes`; kInvalidArgument for anything but a
/// regular file (never blocks on a FIFO).
[[nodiscard]] Result<std::optional<Bytes>> read_file(const std::filesystem::path& path,
                                                     std::uint64_t max_bytes);

/// As read_file, as text; a file that is not there is kNotFound.
[[nodiscard]] Result<std::string> read_text_file(const std::filesystem::path& path,
                                                 std::uint64_t max_bytes);

}  // namespace kiln
