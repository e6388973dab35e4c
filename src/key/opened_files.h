// After a compile: did the compiler read what the key says, and nothing else?

#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "key/header_snapshot.h"

namespace kiln::key {

/// A file that the compiler read and the key does not stand for.
struct Unkeyed {
  std::filesystem::path path;
  std::string reason;  // "changed since the key was made", "reached by #include CONFIG
                       // in kernel.cu line 3, which names no file", ...
};

/// What a worker reports: the headers that NVRTC opened, as it spelled them.
struct OpenedFiles {
  std::span<const std::filesystem::path> paths;
  /// When the compile began, or earlier.
  std::chrono::system_clock::time_point started;
};

/// The first file that makes the result unfit to be published, or nullopt. The caller
/// then uses the result, does not publish it, and warns once, naming the file.
/// Cost: one stat a file. Errors: none; what cannot be checked is unkeyed.
[[nodiscard]] std::optional<Unkeyed> find_unkeyed(const HeaderSnapshot& headers,
                                                  const OpenedFiles& opened);

}  // namespace kiln::key
