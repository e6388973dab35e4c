#include "key/toolkit_folders.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

namespace kiln::key {
namespace {

namespace fs = std::filesystem;

// The resolved path; "" if there is none.
fs::path real(const fs::path& path) {
  std::error_code error;
  fs::path resolved = fs::canonical(path, error);
  return error ? fs::path() : resolved;
}

}  // namespace

std::string with_slash(std::string path) {
  if (!path.empty() && path.back() != '/')
    path.push_back('/');
  return path;
}

ToolkitFolders::ToolkitFolders(std::span<const fs::path> folders,
                               const fs::path& standard_headers) {
  for (const fs::path& folder : folders) {
    const std::string number = trees_.empty() ? "" : std::to_string(trees_.size() + 1);
    add_folder("toolkit" + number, folder);
  }
  if (!standard_headers.empty())
    add_folder(std::string(kStandardTree), standard_headers);
}

void ToolkitFolders::add_folder(std::string tree, const fs::path& folder) {
  auto place = place_of(folder);
  if (!place) {
    place = ToolkitPlace{trees_.size(), ""};
    trees_.push_back({std::move(tree), folder, {}});
    real_roots_.push_back(real(folder));
  }
  trees_[place->tree].inner.push_back(place->inner);
  folders_.push_back({with_slash(folder.native()), *std::move(place)});
}

std::optional<ToolkitPlace> ToolkitFolders::place_of(const fs::path& folder) const {
  if (trees_.empty())
    return std::nullopt;
  const std::string path = with_slash(real(folder).native());
  for (std::size_t i = 0; i < trees_.size() && !path.empty(); ++i) {
    const std::string root = with_slash(real_roots_[i].native());
    if (!root.empty() && path.starts_with(root))
      return ToolkitPlace{i, path.substr(root.size())};
  }
  return std::nullopt;
}

std::optional<std::string> ToolkitFolders::label(const ToolkitPlace& place,
                                                 std::string_view tail) const {
  const std::string inner =
      fs::path(place.inner + std::string(tail)).lexically_normal();
  if (inner.starts_with(".."))
    return std::nullopt;
  return fmt::format("{}/{}", trees_[place.tree].name, inner);
}

std::optional<std::string> ToolkitFolders::label(std::string_view path) const {
  for (const Folder& folder : folders_) {
    if (!path.starts_with(folder.path))
      continue;
    if (auto found = label(folder.place, path.substr(folder.path.size())))
      return found;
  }
  return std::nullopt;
}

}  // namespace kiln::key
