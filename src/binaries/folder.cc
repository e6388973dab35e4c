#include "binaries/folder.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "util/library_search.h"
#include "util/posix_error.h"
#include "util/try.h"

namespace kiln::binaries {
namespace {

namespace fs = std::filesystem;

std::vector<fs::directory_entry> entries_of(const fs::path& folder,
                                            std::error_code& error) {
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error))
    entries.push_back(*each);
  std::sort(entries.begin(), entries.end());
  return entries;
}

void walk_entries(const std::vector<fs::directory_entry>& entries,
                  const std::function<void(const fs::path&)>& take) {
  for (const fs::directory_entry& entry : entries) {
    std::error_code error;
    const fs::file_status status = entry.symlink_status(error);
    if (fs::is_directory(status))
      walk_entries(entries_of(entry.path(), error), take);
    else if (fs::is_regular_file(status))
      take(entry.path());
  }
}

}  // namespace

Result<void> walk(const fs::path& folder,
                  const std::function<void(const fs::path&)>& take) {
  std::error_code error;
  const auto entries = entries_of(folder, error);
  if (error == std::errc::no_such_file_or_directory ||
      error == std::errc::not_a_directory)
    return fail(ErrorCode::kNotFound, "there is no folder " + folder.native());
  if (error)
    return posix_error("read", folder, error.value());
  walk_entries(entries, take);
  return {};
}

bool is_library_name(std::string_view file_name) {
  const std::size_t ending = file_name.find(".so");
  return ending != std::string_view::npos &&
         is_version_of(file_name.substr(ending), ".so");
}

}  // namespace kiln::binaries
