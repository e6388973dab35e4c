// The toolkit's include folders, which every compile searches last, and the trees that
// they make up: a folder inside another one (include/cccl) is part of its tree; the
// folders of a CUDA 12 wheel lie side by side, and each is a tree of its own.

#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::key {

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
    std::string name;            // "toolkit", "toolkit2", ...: stands for it in a key
    std::filesystem::path root;  // as given
    /// Of each folder that is searched, its path inside the tree: "" first.
    std::vector<std::string> inner;
  };
  struct Folder {
    std::string path;  // with a '/' at its end
    ToolkitPlace place;
  };

  /// `folders` are absolute, in the order of search. Cost: a look-up or two each.
  explicit ToolkitFolders(std::span<const std::filesystem::path> folders);

  [[nodiscard]] const std::vector<Tree>& trees() const { return trees_; }
  /// All that are searched, in order.
  [[nodiscard]] const std::vector<Folder>& folders() const { return folders_; }

  /// Where `folder` is by any of its names; nullopt: in none of the trees, or not
  /// there.
  [[nodiscard]] std::optional<ToolkitPlace> place_of(
      const std::filesystem::path& folder) const;

  /// "<tree's name>/<path inside it>" of `tail` below a folder in that place, or of a
  /// whole path; nullopt where it leads out again.
  [[nodiscard]] std::optional<std::string> label(const ToolkitPlace& place,
                                                 std::string_view tail) const;
  [[nodiscard]] std::optional<std::string> label(std::string_view path) const;

 private:
  std::vector<Tree> trees_;
  std::vector<std::filesystem::path> real_roots_;  // of trees_; "" where there is none
  std::vector<Folder> folders_;
};

}  // namespace kiln::key
