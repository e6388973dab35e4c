// Checks after a compile that the compiler read exactly the files in the key, and
// looked nowhere else.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "key/header_snapshot.h"
#include "util/file_stamp.h"

namespace kiln::key {

/// What the compiler did with a file.
enum class FileUse : std::uint8_t { kRead, kMissed };

/// A file that the compiler read, or looked for and missed, and that the key does not
/// cover.
struct Unkeyed {
  FileUse use = FileUse::kRead;
  std::filesystem::path path;
  std::string reason;  // "changed since the key was made", "reached by '#include
                       // CONFIG' in kernel.cu line 3, which names no file", ...
};

/// "the compiler read /x/a.h, changed since the key was made".
[[nodiscard]] std::string to_string(const Unkeyed& unkeyed);

/// What a worker reports, in NVRTC's spelling.
struct OpenedFiles {
  std::span<const OpenedFile> files;  // the headers that it opened
  /// When the compile began, or earlier.
  std::chrono::system_clock::time_point started;
  std::span<const std::filesystem::path> missed = {};  // where it found no file
  bool is_whole = true;                                // false: there were more
};

/// The first file that makes the result unfit to be published, or nullopt. The caller
/// then uses the result but does not publish it, and warns once, naming the file. A
/// path where nothing was found counts like a file: a header that appears there must
/// change the key.
/// What counts is the descriptor that the compiler had: the path may be another file's
/// by now, or may have been meanwhile.
/// Cost: a look-up in memory for most files; where stamps are not reliable, or the file
/// is young, it is read again.
/// Errors: none; a file that cannot be checked is unkeyed.
[[nodiscard]] std::optional<Unkeyed> find_unkeyed(const HeaderSnapshot& headers,
                                                  const OpenedFiles& opened);

/// True if a file that the scan found is not the same any more, or one has appeared
/// where it found none: a build that failed, and so reports no files, may have read
/// something else than the key says. Cost: one stat for each place that was searched.
[[nodiscard]] bool has_changed(const HeaderLookups& lookups);

}  // namespace kiln::key
