#include "key/include_search.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <set>
#include <system_error>
#include <unordered_set>
#include <utility>

namespace kiln::key {
namespace {

namespace fs = std::filesystem;

using Names = std::unordered_set<std::string>;

bool is_there(const std::string& path) {
  return ::faccessat(AT_FDCWD, path.c_str(), F_OK, AT_EACCESS) == 0;
}

// Whether `folder` finds one of its names in another case, too.
bool ignores_case(const std::string& folder, const Names& names) {
  for (const std::string& name : names) {
    std::string other = name;
    for (char& c : other)
      c = std::isalpha(static_cast<unsigned char>(c)) != 0 ? static_cast<char>(c ^ 0x20)
                                                           : c;
    if (other != name && !names.contains(other))
      return is_there(folder + other) || errno != ENOENT;
  }
  return false;
}

// Possible first components of an operand that is found in `folder`; nullopt: its list
// is not all that a compiler finds, since it cannot be read to its end, or may leave
// out what a look-up mounts, or names match in another case.
std::optional<Names> names_in(const std::string& folder) {
  Names names;
  struct statfs info {};
  if (::statfs(folder.c_str(), &info) != 0)
    return errno == ENOENT || errno == ENOTDIR ? std::optional(names) : std::nullopt;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    names.insert(entry->path().filename());
  if (error || info.f_type == AUTOFS_SUPER_MAGIC || ignores_case(folder, names))
    return std::nullopt;
  return names;
}

// Whether an operand may be found in a folder, by its first component alone.
class FirstComponents {
 public:
  explicit FirstComponents(const std::string& folder)
      : folder_(folder), listed_(names_in(folder)) {}

  [[nodiscard]] bool may_have(std::string_view operand) {
    const std::string_view first = operand.substr(0, operand.find('/'));
    if (first == "." || first == "..")
      return true;
    const auto [known, is_new] = known_.try_emplace(first);
    if (is_new)
      known->second =
          has(std::string(first)) || has(std::string(first) + std::string(kStdSuffix));
    return known->second;
  }

 private:
  [[nodiscard]] bool has(const std::string& name) const {
    return listed_ ? listed_->contains(name) : is_there(folder_ + name);
  }

  const std::string& folder_;
  const std::optional<Names> listed_;
  std::unordered_map<std::string_view, bool> known_;
};

}  // namespace

IncludeSearch::IncludeSearch(const SourceKeyInput& input, const ToolkitFolders& toolkit)
    : toolkit_(toolkit), working_directory_(input.working_directory) {
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

FoundHeader IncludeSearch::shadowed_by(const MemoryHeader& header) {
  FoundHeader found;
  found.path =
      header.name.starts_with('/') ? header.name : working_directory_ + header.name;
  if (!toolkit_.label(found.path))
    found.file = stamp_of(found.path);
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
    found.file = stamp_of(found.path);
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
  // Its name may be relative to the working directory.
  if (found == memory_.end() && path.starts_with(working_directory_))
    found = memory_.find(path.substr(working_directory_.size()));
  return found == memory_.end() ? nullptr : found->second;
}

std::optional<FileStamp> IncludeSearch::stamp_of(const std::string& path) {
  const auto [entry, is_new] = files_.try_emplace(path);
  if (is_new)
    entry->second = stamps_.of_readable(path.c_str());
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
    FirstComponents names(folders_[i].path);
    std::set<std::string_view> candidates;  // sorted: the order is always the same
    for (const std::string_view operand : operands) {
      if (names.may_have(operand))
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
