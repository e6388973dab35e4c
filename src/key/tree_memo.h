// What is remembered of one include tree, and whether it still holds.

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
  std::vector<TreeFile> files;        // the settled ones, in the walk's order
  std::vector<std::string> operands;  // found in them
  /// All folders, where files and folders are all there were and all settled: then the
  /// tree need not be listed again. Else none.
  std::vector<WalkedFolder> folders;
  Digest digest;  // IncludeTree's, where there are folders
};

/// Empty where there is none, or none that holds.
[[nodiscard]] TreeMemo read_tree_memo(const OwnFolder& memo_folder,
                                      const std::filesystem::path& root);
[[nodiscard]] MemoWrite write_tree_memo(const OwnFolder& memo_folder,
                                        const std::filesystem::path& root,
                                        const TreeMemo& memo);

/// Whether the memo is of the whole tree, and each file and folder in it is as it was.
/// Cost: one stat each.
[[nodiscard]] bool is_unchanged(const TreeMemo& memo,
                                const std::filesystem::path& root);

/// Takes over the memo's digests into `files`; false, and nothing taken over, unless
/// every file of the memo is still there as it was. A partial match is not used, since
/// the memo's operands belong to all of its files.
[[nodiscard]] bool adopt(const TreeMemo& memo, std::vector<TreeFile>& files);

}  // namespace kiln::key
