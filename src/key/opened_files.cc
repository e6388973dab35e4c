#include "key/opened_files.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "key/toolkit_operands.h"
#include "util/read_file.h"

namespace kiln::key {
namespace {

namespace fs = std::filesystem;

// What the key says about a file.
struct Expected {
  FileStamp stamp;
  bool settled = false;
  std::optional<Digest> content;
};

// Why the compiler may not have read what was expected, where its descriptor had the
// stamp `opened`; nullopt: it has.
std::optional<std::string> difference(const fs::path& path, const FileStamp& opened,
                                      const Expected& expected,
                                      std::chrono::system_clock::time_point started) {
  if (opened == expected.stamp && expected.settled && opened.reliable)
    return std::nullopt;
  const auto now = read_stamped(AT_FDCWD, path, kMaxHeaderBytes);
  if (!now || !*now || !(*now)->is_steady || (*now)->stamp != opened ||
      Digest::of((*now)->bytes) != expected.content)
    return "changed since the key was made";
  // The content is the same but the stamp is new: it may have changed in between.
  if (opened != expected.stamp && !is_settled(opened, started))
    return "written while it was compiled";
  return std::nullopt;
}

// Whether the path has a "..": after a link, that may lead anywhere.
bool has_parent_reference(const fs::path& path) {
  return std::find(path.begin(), path.end(), "..") != path.end();
}

// `path` relative to the tree's root, even if there is no such file; nullopt: outside
// the tree.
std::optional<std::string> inside(const IncludeTree& tree, const fs::path& path) {
  const auto below = [](const fs::path& root,
                        const fs::path& file) -> std::optional<std::string> {
    const fs::path relative = file.lexically_relative(root);
    if (relative.empty() || relative.native().starts_with(".."))
      return std::nullopt;
    return relative.native();
  };
  // As it is spelled, unless a ".." comes after a link to a folder. A link to a file is
  // a file of the tree, wherever it leads.
  const fs::path plain = path.lexically_normal();
  std::error_code error;
  if (!has_parent_reference(path) ||
      fs::equivalent(path.parent_path(), plain.parent_path(), error)) {
    if (auto found = below(tree.root().lexically_normal(), plain))
      return found;
  }
  // Another name of the same folder: /usr/local/cuda and /usr/local/cuda-13.0.
  const fs::path real_root = fs::canonical(tree.root(), error);
  if (error)
    return std::nullopt;
  const fs::path real = fs::weakly_canonical(path, error);
  if (error)
    return std::nullopt;
  return below(real_root, real);
}

// The scan's look-ups by resolved folder. A header that is reached by two paths, d/a.h
// and d/e/../a.h, is one text, and its own includes may be looked up from either.
class RealLookups {
 public:
  explicit RealLookups(const HeaderLookups& lookups) {
    for (const auto& [path, file] : lookups.files) {
      bool& is_file = files_[real(path)];
      is_file = is_file || file.has_value();
    }
  }

  /// Whether there was a file when the key was made; nullopt: the scan did not look.
  [[nodiscard]] std::optional<bool> find(const fs::path& path) {
    const auto found = files_.find(real(path));
    return found == files_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::string real(const fs::path& path) {
    const auto [folder, is_new] = folders_.try_emplace(path.parent_path().native());
    if (is_new) {
      std::error_code error;  // if it cannot be resolved, as it is spelled
      folder->second = fs::weakly_canonical(path.parent_path(), error);
      if (error)
        folder->second = path.parent_path();
    }
    return folder->second / path.filename();
  }

  std::unordered_map<std::string, fs::path> folders_;
  std::unordered_map<std::string, bool> files_;
};

class Check {
 public:
  Check(const HeaderSnapshot& headers, const OpenedFiles& opened)
      : headers_(headers), opened_(opened) {
    for (const HeaderFile& file : headers.files) {
      by_path_.emplace(file.path.lexically_normal(), &file);
      by_identity_.emplace(std::pair(file.stamp.device, file.stamp.inode), &file);
    }
  }

  [[nodiscard]] std::optional<std::string> reason_of_opened(const OpenedFile& file) {
    const fs::path& path = file.path;
    const auto stamp = file.stamp ? file.stamp : stamps_.of_readable(path.c_str());
    if (!stamp)
      return "gone since it was compiled";
    if (const auto named = by_path_.find(path.lexically_normal().native());
        named != by_path_.end())
      return compare(path, *stamp, *named->second);
    for (const ToolkitTree& tree : headers_.toolkit) {
      if (const auto inner = inside(*tree.headers, path)) {
        const TreeFile* known = tree.headers->find(*inner);
        if (known == nullptr)
          return "new in the toolkit's headers since the key was made";
        if (auto found =
                difference(path, *stamp, {known->stamp, known->settled, known->content},
                           opened_.started))
          return found;
        if (known->names_build_time)
          return "which names the time of the build: each build gives it another value";
        return std::nullopt;
      }
    }
    // A computed include could reach a known file in a way that the key does not cover;
    // without computed includes, the key covers every way.
    const auto same = by_identity_.find({stamp->device, stamp->inode});
    if (headers_.computed.empty() && same != by_identity_.end())
      return compare(path, *stamp, *same->second);
    return unknown();
  }

  [[nodiscard]] std::optional<std::string> reason_of_missed(const fs::path& path) {
    constexpr const char* kGone = "which was there when the key was made";
    if (const auto asked = headers_.lookups.files.find(path.native());
        asked != headers_.lookups.files.end())
      return asked->second ? std::optional(kGone) : std::nullopt;
    if (is_operand_of_toolkit(path.native()))
      return std::nullopt;
    for (const ToolkitTree& tree : headers_.toolkit) {
      if (const auto inner = inside(*tree.headers, path)) {
        if (is_unlisted(*tree.headers, *inner))
          return "in a folder that cannot be listed";
        const TreeFile* file = tree.headers->find(*inner);
        return file != nullptr && file->content ? std::optional(kGone) : std::nullopt;
      }
    }
    if (!real_lookups_)
      real_lookups_.emplace(headers_.lookups);
    if (const auto was_there = real_lookups_->find(path))
      return *was_there ? std::optional(kGone) : std::nullopt;
    return not_looked_for();
  }

 private:
  // Whether the walk passed over a folder that `path` is in: it can have no name for
  // what appears there.
  [[nodiscard]] static bool is_unlisted(const IncludeTree& tree,
                                        const std::string& path) {
    for (std::size_t slash = path.find('/'); slash != path.npos;
         slash = path.find('/', slash + 1)) {
      if (tree.find(std::string_view(path).substr(0, slash + 1)) != nullptr)
        return true;
    }
    return false;
  }

  // Whether a header of the toolkit looks at `path` first: the scan did, too.
  [[nodiscard]] bool is_operand_of_toolkit(std::string_view path) const {
    const auto& folders = headers_.lookups.folders;
    return std::ranges::any_of(folders, [&](const std::string& folder) {
      return path.starts_with(folder) &&
             std::ranges::any_of(headers_.toolkit, [&](const ToolkitTree& tree) {
               return has_operand(tree, path.substr(folder.size()));
             });
    });
  }

  [[nodiscard]] std::string not_looked_for() const {
    if (!headers_.conditions.empty()) {
      const ComputedInclude& first = headers_.conditions.front();
      return fmt::format(
          "for a computed condition, such as '{}' in {} line {}, which names no file",
          first.directive, first.file, first.line);
    }
    if (!headers_.computed.empty())
      return unknown();
    return "for a computed condition in one of its headers";
  }

  [[nodiscard]] std::optional<std::string> compare(const fs::path& path,
                                                   const FileStamp& opened,
                                                   const HeaderFile& file) const {
    if (auto found = difference(path, opened, {file.stamp, file.settled, file.content},
                                opened_.started))
      return found;
    return file.varies.empty() ? std::nullopt : std::optional(file.varies);
  }

  [[nodiscard]] std::string unknown() const {
    if (headers_.computed.empty())
      return "which the key does not cover: no #include that was found names it";
    const ComputedInclude& computed = headers_.computed.front();
    return fmt::format("reached by '{}' in {} line {}, which names no file",
                       computed.directive, computed.file, computed.line);
  }

  const HeaderSnapshot& headers_;
  const OpenedFiles& opened_;
  FileStamps stamps_;
  std::unordered_map<std::string, const HeaderFile*> by_path_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, const HeaderFile*> by_identity_;
  std::optional<RealLookups> real_lookups_;  // made when needed, which is rare
};

}  // namespace

std::string to_string(const Unkeyed& unkeyed) {
  return fmt::format("the compiler {} {}, {}",
                     unkeyed.use == FileUse::kRead ? "read" : "looked in vain for",
                     unkeyed.path.native(), unkeyed.reason);
}

std::optional<Unkeyed> find_unkeyed(const HeaderSnapshot& headers,
                                    const OpenedFiles& opened) {
  if (headers.varying)
    return Unkeyed{FileUse::kRead, headers.varying->name, headers.varying->reason};
  Check check(headers, opened);
  for (const OpenedFile& file : opened.files) {
    if (auto reason = check.reason_of_opened(file))
      return Unkeyed{FileUse::kRead, file.path, *std::move(reason)};
  }
  for (const fs::path& path : opened.missed) {
    if (auto reason = check.reason_of_missed(path))
      return Unkeyed{FileUse::kMissed, path, *std::move(reason)};
  }
  if (!opened.is_whole)
    return Unkeyed{FileUse::kMissed, opened.missed.empty() ? "" : opened.missed.back(),
                   "and for more files than are checked"};
  return std::nullopt;
}

bool has_changed(const HeaderLookups& lookups) {
  FileStamps stamps;
  return std::ranges::any_of(lookups.files, [&](const auto& place) {
    return stamps.of_readable(place.first.c_str()) != place.second;
  });
}

}  // namespace kiln::key
