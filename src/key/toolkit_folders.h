// The toolkit's include folders, which every compile searches last, grouped into trees:
// a folder inside another one (include/cccl) belongs to its tree; the folders of a CUDA
// 12 wheel lie side by side, and each is its own tree. Behind them comes Kiln's folder
// of standard headers, a tree as well.

#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::key {

/// The tree of the standard headers: its name in a key.
inline constexpr std::string_view kStandardTree = "standard";

/// `path` with a '/' at its end; "" stays "".
[[nodiscard]] std::string with_slash(std::string path);

/// A folder's place in a tree.
struct ToolkitPlace {
  std::size_t tree = 0;
  std::string inner;  // its path inside the tree, "" or with a '/' at its end
};

/// Thread safety: immutable.
class ToolkitFolders {
 public:
  struct Tree {
    std::string name;  // "toolkit", "toolkit2", ..., kStandardTree: its name in a key
    std::filesystem::path root;  // as given
    /// The path in the tree of each folder that is searched; "" comes first.
    std::vector<std::string> inner;
  };
  struct Folder {
    std::string path;  // with a '/' at its end
    ToolkitPlace place;
  };

  /// `folders` are absolute, in search order; `standard_headers` as well, or "". Cost:
  /// a look-up or two per folder.
  explicit ToolkitFolders(std::span<const std::filesystem::path> folders,
                          const std::filesystem::path& standard_headers = {});

  [[nodiscard]] const std::vector<Tree>& trees() const { return trees_; }
  [[nodiscard]] bool has_standard_headers() const {
    return !trees_.empty() && trees_.back().name == kStandardTree;
  }
  /// All searched folders, in order.
  [[nodiscard]] const std::vector<Folder>& folders() const { return folders_; }

  /// The place of `folder`, by any of its names; nullopt: it is in no tree or does not
  /// exist.
  [[nodiscard]] std::optional<ToolkitPlace> place_of(
      const std::filesystem::path& folder) const;

  /// "<tree's name>/<path in the tree>", for `tail` below a folder in that place or for
  /// a whole path; nullopt if it leads out of the tree.
  [[nodiscard]] std::optional<std::string> label(const ToolkitPlace& place,
                                                 std::string_view tail) const;
  [[nodiscard]] std::optional<std::string> label(std::string_view path) const;

 private:
  /// `tree` is the name of its tree if it begins one.
  void add_folder(std::string tree, const std::filesystem::path& folder);

  std::vector<Tree> trees_;
  std::vector<std::filesystem::path> real_roots_;  // of trees_; "": it does not exist
  std::vector<Folder> folders_;
};

}  // namespace kiln::key
