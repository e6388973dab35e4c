// Lists the files below a folder with their stamps: one stat a file, none read.

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "key/file_stamp.h"
#include "kiln/result.h"

namespace kiln::key {

struct WalkedFile {
  std::string path;      // relative; of a folder that may not be read: with a '/'
  FileStamp stamp;       // all zero for such a folder
  bool readable = true;  // false for such a folder
};

struct WalkedFolder {
  std::string path;  // relative, "." or with a '/' at its end
  FileStamp stamp;   // as it was before it was listed
};

struct WalkedTree {
  /// Sorted by bytes within a folder, a folder's files in its place.
  std::vector<WalkedFile> files;
  std::vector<WalkedFolder> folders;
  /// Whether another walk finds the same names while the folders keep their stamps. Not
  /// so after a broken link, say: what it points to may come to be elsewhere.
  bool told_by_folders = true;
};

/// Follows links, as read_include_tree() says. Errors: kNotFound, kResourceLimit, kIo.
[[nodiscard]] Result<WalkedTree> walk_tree(const std::filesystem::path& root);

/// The stamp of a file or folder below the open folder `root`, zero where there is
/// none.
[[nodiscard]] FileStamp stamp_below(int root, const std::string& path);

/// The order of such a list: by components, each by its bytes.
[[nodiscard]] bool walks_before(std::string_view a, std::string_view b);

}  // namespace kiln::key
