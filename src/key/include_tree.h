// One digest for a whole include tree, the toolkit's: relative paths and contents of
// all its files. A memo on disk, under the cache root, spares reading them again: what
// is left is one stat a file. The digest is the same for a copy in another folder.

#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/digest.h"
#include "key/file_stamp.h"
#include "key/memo_file.h"
#include "kiln/result.h"

namespace kiln::key {

struct TreeFile {
  std::string path;  // relative to the root
  FileStamp stamp;
  bool settled = false;
  std::optional<Digest> content;  // nullopt: this process may not read it
};

/// Thread safety: immutable.
class IncludeTree {
 public:
  /// `files` in the order of files(), `operands` in that of operands(); `digest` is
  /// digest_of_tree(files).
  IncludeTree(std::filesystem::path root, std::vector<TreeFile> files,
              std::vector<std::string> operands, const Digest& digest);

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  [[nodiscard]] const Digest& digest() const { return digest_; }
  /// In the order of the walk: by bytes within a folder, a folder's files in its place.
  [[nodiscard]] const std::vector<TreeFile>& files() const { return files_; }
  /// The file of that relative path, or null. Cost: a binary search.
  [[nodiscard]] const TreeFile* find(std::string_view path) const;
  /// Every #include and __has_include operand in the tree, sorted, each once. Together
  /// with the files' own paths: what a file in another include directory can stand in
  /// for.
  [[nodiscard]] const std::vector<std::string>& operands() const { return operands_; }

 private:
  std::filesystem::path root_;
  std::vector<TreeFile> files_;
  std::vector<std::string> operands_;
  Digest digest_;
};

/// SHA-256 of the files' relative paths and contents, in the order of the walk.
[[nodiscard]] Digest digest_of_tree(const std::vector<TreeFile>& files);

struct IncludeTreeRead {
  std::shared_ptr<const IncludeTree> tree;
  std::size_t files_hashed = 0;  // 0: the memo had them all
  MemoWrite memo = MemoWrite::kNotNeeded;
};

/// Walks the tree below `root` and hashes what `memo_folder` does not know; an empty
/// `memo_folder` means no memo. Links to files and folders are followed; a loop of
/// links ends where it meets itself, as it does for a compiler that spells no path
/// twice through it. A file that may not be read counts as such. Anything but files and
/// folders, and a broken link, is left out. Thread-safe; processes may share the memo.
/// Cost: one stat a file; the first time also reading them all.
/// Errors: kNotFound (no such folder), kResourceLimit (over 100,000 files or 64 levels:
/// not an include tree), kIo. `now` is for tests of what is_settled(). A memo that
/// cannot be read or written is no error.
[[nodiscard]] Result<IncludeTreeRead> read_include_tree(
    const std::filesystem::path& root, const OwnFolder& memo_folder,
    std::chrono::system_clock::time_point now = std::chrono::system_clock::now());

}  // namespace kiln::key
