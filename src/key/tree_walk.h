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

/// Sorted by bytes within a folder, a folder's files in its place; follows links, as
/// read_include_tree() says. Errors: kNotFound, kResourceLimit, kIo.
[[nodiscard]] Result<std::vector<WalkedFile>> walk_tree(
    const std::filesystem::path& root);

/// The order of such a list: by components, each by its bytes.
[[nodiscard]] bool walks_before(std::string_view a, std::string_view b);

}  // namespace kiln::key
