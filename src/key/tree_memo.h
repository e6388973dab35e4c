// The memo of one include tree, and whether it is still valid.

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "codec/digest.h"
#include "key/include_tree.h"
#include "key/memo_file.h"
#include "key/tree_walk.h"

namespace kiln::key {

struct TreeMemo {
  std::vector<TreeFile> files;        // the settled ones, in walk order
  std::vector<std::string> operands;  // found in them
  /// All folders of the tree, if every file and folder is settled and in the memo: then
  /// the tree need not be listed again. Otherwise empty.
  std::vector<WalkedFolder> folders;
  Digest digest;  // IncludeTree's, if there are folders
};

/// Empty if there is no valid memo.
[[nodiscard]] TreeMemo read_tree_memo(const OwnFolder& memo_folder,
                                      const std::filesystem::path& root);
[[nodiscard]] MemoWrite write_tree_memo(const OwnFolder& memo_folder,
                                        const std::filesystem::path& root,
                                        const TreeMemo& memo);

/// Whether the memo covers the whole tree, and each file and folder in it is unchanged.
/// Cost: one stat each.
[[nodiscard]] bool is_unchanged(const TreeMemo& memo,
                                const std::filesystem::path& root);

/// Copies the memo's digests into `files`. Returns false and copies nothing unless
/// every file in the memo is unchanged. A partial match is not used, since the memo's
/// operands belong to all of its files.
[[nodiscard]] bool copy_digests(const TreeMemo& memo, std::vector<TreeFile>& files);

}  // namespace kiln::key
