// The names in a folder, without a path for each: most are looked at and dropped.

#pragma once

#include <dirent.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// Those that `wanted` accepts, in no order; "." and ".." are never asked about. None
/// where the folder cannot be read: one that is not there is the normal case.
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
