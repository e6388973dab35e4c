// Small files for the tests of headers.

#pragma once

#include <fcntl.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "util/file_stamp.h"

namespace kiln::test {

inline void write(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// A time at which a file written now counts as settled.
inline std::chrono::system_clock::time_point later() {
  return std::chrono::system_clock::now() + 2 * kSettleTime;
}

/// Why no memo of what lies in `folder` is kept here; "" if one is.
inline std::string why_no_memo(const std::filesystem::path& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) == 0 &&
      FileStamps().of(info, AT_FDCWD, folder.c_str()).reliable)
    return "";
  return folder.native() + " is not on ext4, xfs, btrfs or f2fs: nothing is remembered";
}

/// As they are now.
inline std::vector<OpenedFile> opened(const std::vector<std::filesystem::path>& paths) {
  std::vector<OpenedFile> files;
  for (const auto& path : paths)
    files.push_back({path, FileStamps().of_readable(path.c_str())});
  return files;
}

}  // namespace kiln::test
