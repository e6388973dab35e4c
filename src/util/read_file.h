// Reads a file, whole or line by line; no mmap, so that a truncation cannot raise
// SIGBUS.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "kiln/result.h"
#include "util/bytes.h"
#include "util/file_stamp.h"

namespace kiln {

/// The bytes of a regular file up to its end, whatever size the file system says; or
/// nullopt if there is none. Thread-safe.
/// Errors: kIo; kResourceLimit above `max_bytes`; kInvalidArgument for anything but a
/// regular file (never blocks on a FIFO).
[[nodiscard]] Result<std::optional<Bytes>> read_file(const std::filesystem::path& path,
                                                     std::uint64_t max_bytes);

/// What one descriptor read, and its stamp.
struct StampedBytes {
  Bytes bytes;
  FileStamp stamp;
  /// Whether the stamp was the same before and after, at one of a few tries.
  bool is_steady = false;
};

/// As read_file, of `path` below the open folder, or of an absolute path.
[[nodiscard]] Result<std::optional<StampedBytes>> read_stamped(
    int folder, const std::filesystem::path& path, std::uint64_t max_bytes);

/// As read_file, as text; a file that is not there is kNotFound.
[[nodiscard]] Result<std::string> read_text_file(const std::filesystem::path& path,
                                                 std::uint64_t max_bytes);

/// Calls `take` with each line, without its newline; only one is in memory at a time.
/// Ends at its first error. Errors: that; those of read_text_file.
[[nodiscard]] Result<void> read_lines(
    const std::filesystem::path& path, std::uint64_t max_bytes,
    const std::function<Result<void>(std::string_view)>& take);

}  // namespace kiln
