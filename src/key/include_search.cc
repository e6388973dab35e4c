#include "key/include_search.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>
#include <system_error>
#include <unordered_set>
#include <utility>

namespace kiln::key {
namespace {

namespace fs = std::filesystem;

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>()(text);
  }
};
using Names = std::unordered_set<std::string, TextHash, std::equal_to<>>;

// Possible first components of an operand that is found in `folder`.
Names names_in(const std::string& folder) {
  Names names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename();
    if (name.ends_with(kStdSuffix))
      names.insert(name.substr(0, name.size() - kStdSuffix.size()));
    names.insert(std::move(name));
  }
  names.insert({".", ".."});
  return names;
}

}  // namespace

IncludeSearch::IncludeSearch(const SourceKeyInput& input, const ToolkitFolders& toolkit)
    : toolkit_(toolkit) {
  for (const fs::path& dir : input.include_dirs)
    folders_.push_back({with_slash(dir.native()), toolkit.place_of(dir)});
  for (const ToolkitFolders::Folder& folder : toolkit.folders())
    folders_.push_back({folder.path, folder.place});
  for (const MemoryHeader& header : input.memory_headers)
    memory_.emplace(header.name, &header);  // the first of a name wins, as in NVRTC
  for (const std::string& option : input.options) {
    // Despite its name, the option applies to headers too.
    if (option == "-no-source-include" || option == "--no-source-include")
      quoted_sees_folder_ = false;
  }
}

FoundHeader IncludeSearch::find(Lookup lookup, const std::string& operand,
                                const Includer& from) {
  if (const auto memory = memory_.find(operand); memory != memory_.end()) {
    FoundHeader found;
    found.memory = memory->second;
    return found;
  }
  first_namesake_ = nullptr;
  FoundHeader found = find_file(lookup, operand, from);
  found.namesake = first_namesake_;
  return found;
}

FoundHeader IncludeSearch::find_file(Lookup lookup, const std::string& operand,
                                     const Includer& from) {
  if (operand.starts_with('/'))
    return look(Folder{}, operand).value_or(FoundHeader{});
  const bool is_next =
      lookup == Lookup::kNext || (lookup == Lookup::kNextQuoted && from.has_file);
  const bool quoted = lookup == Lookup::kQuoted || lookup == Lookup::kNextQuoted;
  if (((quoted && !is_next && quoted_sees_folder_) || lookup == Lookup::kPreInclude) &&
      from.folder) {
    if (auto found = look(Folder{*from.folder, std::nullopt}, operand))
      return *found;
  }
  for (std::size_t i = is_next ? from.next_dir : 0; i < folders_.size(); ++i) {
    if (auto found = look(folders_[i], operand)) {
      found->as_includer.next_dir = i + 1;
      return *found;
    }
  }
  return {};
}

std::optional<FoundHeader> IncludeSearch::look(const Folder& folder,
                                               const std::string& operand) {
  std::vector<std::string> names = {operand};
  // NVRTC tries a header without a suffix with this one, too.
  if (operand.find('.', operand.rfind('/') + 1) == std::string::npos)
    names.push_back(operand + std::string(kStdSuffix));
  for (const std::string& name : names) {
    FoundHeader found;
    found.path = folder.path + name;
    if (first_namesake_ == nullptr)
      first_namesake_ = namesake(found.path);
    found.file = stat_file(found.path);
    if (!found.file)
      continue;
    found.toolkit = toolkit_path(folder, found.path, name);
    if (found.toolkit)
      found.file.reset();
    found.as_includer.folder = found.path.substr(0, found.path.rfind('/') + 1);
    return found;
  }
  return std::nullopt;
}

std::optional<std::string> IncludeSearch::toolkit_path(const Folder& folder,
                                                       const std::string& path,
                                                       std::string_view tail) const {
  if (folder.toolkit) {
    if (auto inner = toolkit_.label(*folder.toolkit, tail))
      return inner;
  }
  return toolkit_.label(path);
}

const MemoryHeader* IncludeSearch::namesake(std::string_view path) const {
  if (memory_.empty())
    return nullptr;
  auto found = memory_.find(path);
  if (found == memory_.end())  // its name may be relative to the working directory
    found = memory_.find(path.substr(std::string_view(kWorkingDirectory).size()));
  return found == memory_.end() ? nullptr : found->second;
}

std::optional<FileStamp> IncludeSearch::stat_file(const std::string& path) {
  const auto [entry, is_new] = files_.try_emplace(path);
  if (!is_new)
    return entry->second;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
    return std::nullopt;
  // The compiler skips a file that it may not read.
  if ((info.st_mode & S_IROTH) == 0 &&
      ::faccessat(AT_FDCWD, path.c_str(), R_OK, AT_EACCESS) != 0)
    return std::nullopt;
  entry->second = stamp_of(info);
  return entry->second;
}

FileIdentity IncludeSearch::identity_of(const std::string& folder) {
  const auto [entry, is_new] = identities_.try_emplace(folder);
  if (is_new) {
    struct stat info {};
    if (::stat(folder.empty() ? "." : folder.c_str(), &info) == 0)
      entry->second = {info.st_dev, info.st_ino};
  }
  return entry->second;
}

HeaderLookups IncludeSearch::take_lookups() {
  HeaderLookups lookups;
  lookups.files = std::exchange(files_, {});
  for (const Folder& folder : folders_) {
    if (!folder.toolkit)
      lookups.folders.push_back(folder.path);
  }
  return lookups;
}

std::vector<IncludeSearch::Shadow> IncludeSearch::find_shadows(
    const std::vector<std::string_view>& operands) {
  std::vector<Shadow> shadows;
  std::size_t toolkit_folders = 0;
  for (std::size_t i = 0; i < folders_.size(); ++i) {
    if (folders_[i].toolkit) {
      ++toolkit_folders;
      continue;
    }
    const auto names = names_in(folders_[i].path);
    std::set<std::string_view> candidates;  // sorted: the order is always the same
    for (const std::string_view operand : operands) {
      if (names.contains(operand.substr(0, operand.find('/'))))
        candidates.insert(operand);
    }
    for (const std::string_view operand : candidates) {
      auto found = look(folders_[i], std::string(operand));
      if (!found || !found->file)
        continue;
      found->as_includer.next_dir = i + 1;
      shadows.push_back({std::string(operand), toolkit_folders, *std::move(found)});
    }
  }
  return shadows;
}

}  // namespace kiln::key
