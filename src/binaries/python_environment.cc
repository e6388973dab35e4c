#include "binaries/python_environment.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <system_error>

#include "binaries/folder.h"
#include "util/folder_names.h"
#include "util/library_search.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::binaries {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMetadata = ".dist-info";

/// "torch 2.10.0", of "torch-2.10.0.dist-info".
std::string distribution_of(std::string_view folder_name) {
  std::string name(folder_name.substr(0, folder_name.size() - kMetadata.size()));
  std::replace(name.begin(), name.end(), '-', ' ');
  return name;
}

/// The path in a line of a RECORD: "torch/lib/libtorch.so,sha256=…,123", which is
/// quoted where it has a comma.
std::string_view path_in(std::string_view line) {
  if (line.starts_with('"'))
    return line.substr(1, line.find('"', 1) - 1);
  return line.substr(0, line.find(','));
}

std::vector<std::string> metadata_folders(const fs::path& packages) {
  return folder_names(packages,
                      [](std::string_view name) { return name.ends_with(kMetadata); });
}

/// Which distribution each library is of, by its path below `packages`.
std::map<std::string, std::string, std::less<>> owners_in(const fs::path& packages) {
  constexpr std::uint64_t kMostRecord = 256ULL << 20U;
  std::map<std::string, std::string, std::less<>> owners;
  for (const std::string& name : metadata_folders(packages)) {
    // One that is not there, or damaged, names no files.
    std::ignore = read_lines(packages / name / "RECORD", kMostRecord,
                             [&](std::string_view line) -> Result<void> {
                               const std::string_view path = path_in(line);
                               if (is_library_name(path.substr(path.rfind('/') + 1)))
                                 owners.emplace(path, distribution_of(name));
                               return {};
                             });
  }
  return owners;
}

bool is_package_folder(const fs::path& folder) {
  return folder.filename() == "site-packages" || folder.filename() == "dist-packages" ||
         !metadata_folders(folder).empty();
}

void add_package_folders(const fs::path& root, std::vector<fs::path>& found) {
  std::error_code error;
  for (const char* const lib : {"lib", "lib64"}) {
    if (fs::is_symlink(root / lib, error))  // lib64, to lib
      continue;
    const auto pythons = folder_names(
        root / lib, [](std::string_view name) { return name.starts_with("python3"); });
    for (const std::string& python : pythons) {
      for (const char* const name : {"site-packages", "dist-packages"}) {
        if (fs::is_directory(root / lib / python / name, error))
          found.push_back(root / lib / python / name);
      }
    }
  }
}

}  // namespace

std::vector<fs::path> package_folders(const fs::path& root) {
  std::vector<fs::path> found;
  const fs::path folder = root.has_filename() ? root : root.parent_path();
  if (is_package_folder(folder))
    return {folder};
  add_package_folders(folder, found);
  if (folder == "/usr")  // where pip installs beside the distribution's packages
    add_package_folders("/usr/local", found);
  std::sort(found.begin(), found.end());
  return found;
}

Result<std::vector<EnvironmentLibrary>> libraries_in(const fs::path& packages) {
  const auto owners = owners_in(packages);
  std::vector<EnvironmentLibrary> libraries;
  KILN_TRY(walk(packages, [&](const fs::path& path) {
    if (is_library_name(path.filename().native())) {
      const auto owner = owners.find(path.lexically_relative(packages).native());
      libraries.push_back({path, owner == owners.end() ? "" : owner->second});
    }
  }));
  return libraries;
}

fs::path active_environment() {
  for (const char* const name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* const root = ::secure_getenv(name);
    if (root != nullptr && *root != '\0')
      return root;
  }
  for (const fs::path& folder : folders_of_variable("PATH")) {
    std::error_code error;
    if (fs::exists(folder / "python3", error))
      return folder.parent_path();
  }
  return {};
}

}  // namespace kiln::binaries
