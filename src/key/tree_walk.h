// Lists the files below a folder with their stamps: one stat per file, nothing is read.

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kiln/result.h"
#include "util/file_stamp.h"
#include "util/unique_fd.h"

namespace kiln::key {

struct WalkedFile {
  std::string path;      // relative; an unreadable folder ends with a '/'
  FileStamp stamp;       // all zero for such a folder
  bool readable = true;  // false for such a folder
};

struct WalkedFolder {
  std::string path;  // relative, "." or with a '/' at its end
  FileStamp stamp;   // as it was before the listing
};

struct WalkedTree {
  /// Of the root, for looking at what is below: the path may be another folder's now.
  UniqueFd root;
  /// Sorted by bytes within a folder, with a folder's files in its place.
  std::vector<WalkedFile> files;
  std::vector<WalkedFolder> folders;
  /// Whether a new walk must find the same names if the folders keep their stamps.
  /// False after a broken link, for example: its target may appear outside the tree.
  bool folder_stamps_suffice = true;
};

/// Follows links, as read_include_tree() says. Errors: kNotFound, kResourceLimit, kIo.
[[nodiscard]] Result<WalkedTree> walk_tree(const std::filesystem::path& root);

/// The order of WalkedTree::files: by components, each by its bytes.
[[nodiscard]] bool walks_before(std::string_view a, std::string_view b);

}  // namespace kiln::key
