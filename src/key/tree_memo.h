// The memo of one include tree, and whether it is still valid. One whose stamps are all
// reliable is kept on disk; any other, in the process alone.

#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "codec/digest.h"
#include "key/include_tree.h"
#include "key/memo_file.h"
#include "key/tree_walk.h"
#include "util/mutex.h"

namespace kiln::key {

struct TreeMemo {
  std::vector<TreeFile> files;        // the settled ones, in walk order
  std::vector<std::string> operands;  // found in them
  /// All folders of the tree, if every file and folder is settled and in the memo: then
  /// the tree need not be listed again. Otherwise empty.
  std::vector<WalkedFolder> folders;
  Digest digest;  // IncludeTree's, if there are folders
};

/// Thread safety: all members may be called concurrently, in any number of processes.
class TreeMemos {
 public:
  /// Empty `folder`: in the process alone.
  explicit TreeMemos(OwnFolder folder) : folder_(std::move(folder)) {}

  /// Empty if there is no valid memo.
  [[nodiscard]] TreeMemo read(const std::filesystem::path& root) const;
  [[nodiscard]] MemoWrite write(const std::filesystem::path& root,
                                const TreeMemo& memo);

 private:
  const OwnFolder folder_;
  mutable Mutex mutex_;
  std::map<std::filesystem::path, TreeMemo> of_process_ KILN_GUARDED_BY(mutex_);
};

/// Whether the memo covers the whole tree, and each file and folder in it is unchanged.
/// Cost: one stat each.
[[nodiscard]] bool is_unchanged(const TreeMemo& memo,
                                const std::filesystem::path& root);

/// Copies the memo's digests into `files`. Returns false and copies nothing unless
/// every file in the memo is unchanged. A partial match is not used, since the memo's
/// operands belong to all of its files.
[[nodiscard]] bool copy_digests(const TreeMemo& memo, std::vector<TreeFile>& files);

}  // namespace kiln::key
