// The names in a folder. Makes no path for each: most names are dropped.

#pragma once

#include <dirent.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// The names that `wanted` accepts, unordered, without "." and "..". Empty if the
/// folder cannot be read: a missing folder is the normal case.
template <typename Wanted>
[[nodiscard]] std::vector<std::string> folder_names(const std::filesystem::path& folder,
                                                    const Wanted& wanted) {
  struct Close {
    void operator()(DIR* open) const { ::closedir(open); }
  };
  std::vector<std::string> names;
  const std::unique_ptr<DIR, Close> open(::opendir(folder.c_str()));
  if (open == nullptr)
    return names;
  // One thread has this folder open. NOLINTNEXTLINE(concurrency-mt-unsafe)
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && wanted(name))
      names.emplace_back(name);
  }
  return names;
}

}  // namespace kiln
