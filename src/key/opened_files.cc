#include "key/opened_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <map>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "util/read_file.h"

namespace kiln::key {
namespace {

namespace fs = std::filesystem;

// As large as the largest header that a key can hold.
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{64} << 20U;

// What the key says about a file.
struct Expected {
  FileStamp stamp;
  bool settled = false;
  std::optional<cache::Digest> content;
};

// The reason why what the compiler read may differ from what was expected, or nullopt.
std::optional<std::string> difference(const fs::path& path, const FileStamp& now,
                                      const Expected& expected,
                                      std::chrono::system_clock::time_point started) {
  if (now == expected.stamp && expected.settled)
    return std::nullopt;
  const auto bytes = read_file(path, kMaxFileBytes);
  if (!bytes || !*bytes || cache::Digest::of(**bytes) != expected.content)
    return "changed since the key was made";
  // The same content under a new stamp: it may have been another one meanwhile.
  if (now != expected.stamp && !is_settled(now, started))
    return "written while it was compiled";
  return std::nullopt;
}

// `path` below the tree's root, in the tree's spelling; nullopt: elsewhere.
std::optional<std::string> inside(const IncludeTree& tree, const fs::path& path) {
  const auto below = [](const fs::path& root,
                        const fs::path& file) -> std::optional<std::string> {
    const fs::path relative =
        file.lexically_normal().lexically_relative(root.lexically_normal());
    if (relative.empty() || relative.native().starts_with(".."))
      return std::nullopt;
    return relative.native();
  };
  if (auto found = below(tree.root(), path))
    return found;
  // Another name of the same folder: /usr/local/cuda and /usr/local/cuda-13.0.
  std::error_code error;
  const fs::path real_root = fs::canonical(tree.root(), error);
  if (error)
    return std::nullopt;
  const fs::path real = fs::canonical(path, error);
  if (error)
    return std::nullopt;
  return below(real_root, real);
}

class Check {
 public:
  Check(const HeaderSnapshot& headers, const OpenedFiles& opened)
      : headers_(headers), opened_(opened) {
    for (const HeaderFile& file : headers.files) {
      by_path_.emplace(file.path.lexically_normal(), &file);
      by_identity_.emplace(std::pair(file.stamp.device, file.stamp.inode), &file);
    }
  }

  [[nodiscard]] std::optional<std::string> reason(const fs::path& path) const {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0)
      return "gone since it was compiled";
    if (S_ISDIR(info.st_mode))
      return std::nullopt;  // opened in search of a header, and passed over
    const FileStamp now = stamp_of(info);
    if (const auto named = by_path_.find(path.lexically_normal().native());
        named != by_path_.end())
      return compare(path, now, *named->second);
    if (headers_.toolkit) {
      if (const auto inner = inside(*headers_.toolkit, path)) {
        const TreeFile* file = headers_.toolkit->find(*inner);
        if (file == nullptr)
          return "new in the toolkit's headers since the key was made";
        return difference(path, now, {file->stamp, file->settled, file->content},
                          opened_.started);
      }
    }
    // A computed include could reach a known file by a way that the key does not know;
    // without one, every way to it is known.
    const auto same = by_identity_.find({now.device, now.inode});
    if (headers_.computed.empty() && same != by_identity_.end())
      return compare(path, now, *same->second);
    return unknown();
  }

 private:
  [[nodiscard]] std::optional<std::string> compare(const fs::path& path,
                                                   const FileStamp& now,
                                                   const HeaderFile& file) const {
    return difference(path, now, {file.stamp, file.settled, file.content},
                      opened_.started);
  }

  [[nodiscard]] std::string unknown() const {
    if (headers_.computed.empty())
      return "no #include that was found names it";
    const ComputedInclude& computed = headers_.computed.front();
    return fmt::format("reached by '{}' in {} line {}, which names no file",
                       computed.directive, computed.file, computed.line);
  }

  const HeaderSnapshot& headers_;
  const OpenedFiles& opened_;
  std::unordered_map<std::string, const HeaderFile*> by_path_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, const HeaderFile*> by_identity_;
};

}  // namespace

std::optional<Unkeyed> find_unkeyed(const HeaderSnapshot& headers,
                                    const OpenedFiles& opened) {
  const Check check(headers, opened);
  for (const fs::path& path : opened.paths) {
    if (auto reason = check.reason(path))
      return Unkeyed{path, *std::move(reason)};
  }
  return std::nullopt;
}

}  // namespace kiln::key
