// Small files for the tests of headers.

#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace kiln::test {

inline void write(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// A time at which a file written now counts as settled.
inline std::chrono::system_clock::time_point later() {
  return std::chrono::system_clock::now() + std::chrono::minutes(1);
}

}  // namespace kiln::test
