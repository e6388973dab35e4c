// One digest for a whole include tree, the toolkit's: the relative paths and contents
// of all its files. A memo saves reading them again: one stat per file remains. Where
// stamps are reliable it is on disk, under the cache root; elsewhere each process reads
// them once. A copy of the tree in another folder has the same digest.

#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "codec/digest.h"
#include "key/memo_file.h"
#include "kiln/result.h"
#include "util/file_stamp.h"

namespace kiln::key {

struct TreeFile {
  std::string path;  // relative to the root
  FileStamp stamp;   // of the descriptor that read it
  bool settled = false;
  std::optional<Digest> content;  // nullopt: this process may not read it
  bool names_build_time = false;  // __DATE__, __TIME__ or __TIMESTAMP__
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
  /// In walk order: by bytes within a folder, with a folder's files in its place.
  [[nodiscard]] const std::vector<TreeFile>& files() const { return files_; }
  /// The file of that relative path, or null. Cost: a binary search.
  [[nodiscard]] const TreeFile* find(std::string_view path) const;
  /// Every #include and __has_include operand in the tree, sorted, without duplicates.
  /// Together with the files' own paths: the names that a file in another include
  /// directory can shadow.
  [[nodiscard]] const std::vector<std::string>& operands() const { return operands_; }

 private:
  std::filesystem::path root_;
  std::vector<TreeFile> files_;
  std::vector<std::string> operands_;
  Digest digest_;
};

/// SHA-256 of the files' relative paths and contents, in walk order.
[[nodiscard]] Digest digest_of_tree(const std::vector<TreeFile>& files);

struct IncludeTreeRead {
  std::shared_ptr<const IncludeTree> tree;
  std::size_t files_hashed = 0;  // 0: the memo had them all
  MemoWrite memo = MemoWrite::kNotNeeded;
};

class TreeMemos;

/// Walks the tree below `root` and hashes the files that the memo does not know.
/// Follows links to files and folders. Stops at a link that leads back to a folder
/// above it; a compiler finds no more unless an #include goes around the loop. A file
/// without read permission counts as unreadable. Broken links, and anything but files
/// and folders, are left out. Thread-safe; processes may share the memo. Cost: one stat
/// per file; the first time also a read. Errors: kNotFound (no such folder),
/// kResourceLimit (over 100,000 files or 64 levels: not an include tree;
/// find_directives), kIo, kCancelled. A memo that cannot be read or written is no
/// error. `now` is for tests of is_settled().
[[nodiscard]] Result<IncludeTreeRead> read_include_tree(
    const std::filesystem::path& root, TreeMemos& memos,
    std::chrono::system_clock::time_point now = std::chrono::system_clock::now(),
    const std::stop_token& stop = {});

}  // namespace kiln::key
