// The path of a file that is opened later, or by a process in another folder.

#pragma once

#include <filesystem>
#include <system_error>

namespace kiln {

/// `path` itself, if it is empty or there is no working directory.
[[nodiscard]] inline std::filesystem::path absolute_path(
    const std::filesystem::path& path) {
  std::error_code error;
  auto found = std::filesystem::absolute(path, error);
  return error ? path : found;
}

}  // namespace kiln
