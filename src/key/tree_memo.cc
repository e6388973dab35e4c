#include "key/tree_memo.h"

#include <fcntl.h>

#include <algorithm>
#include <optional>

#include "codec/digest.h"
#include "key/memo_codec.h"
#include "util/unique_fd.h"

namespace kiln::key {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kTreeMemoFormat = 5;

// The tree's path only names its memo; it is in no key.
std::string memo_name(const fs::path& root) {
  return "tree-" + Digest::of(as_bytes(root.native())).hex();
}

constexpr auto kFile = [](auto& codec, auto& file) {
  auto& [path, stamp, settled, content, names_build_time] = file;
  codec.text(path);
  kMemoStamp(codec, stamp);
  auto digest = content.value_or(Digest());
  codec.digest(digest);
  codec.number(names_build_time);
  codec.implied(content, std::optional(digest));
  codec.implied(settled, true);
};

constexpr auto kFolder = [](auto& codec, auto& folder) {
  auto& [path, stamp] = folder;
  codec.text(path);
  kMemoStamp(codec, stamp);
};

constexpr auto kTreeMemo = [](auto& codec, auto& memo) {
  auto& [files, operands, folders, digest] = memo;
  codec.each(files, kFile);
  codec.each(operands, [](auto& each, auto& operand) { each.text(operand); });
  codec.each(folders, kFolder);
  codec.digest(digest);
};

bool is_reliable(const TreeMemo& memo) {
  const auto reliable = [](const auto& known) { return known.stamp.reliable; };
  return std::ranges::all_of(memo.folders, reliable) &&
         std::ranges::all_of(memo.files, reliable);
}

}  // namespace

TreeMemo TreeMemos::read(const fs::path& root) const {
  {
    const MutexLock lock(mutex_);
    if (const auto known = of_process_.find(root); known != of_process_.end())
      return known->second;
  }
  const auto bytes = read_memo(folder_, memo_name(root));
  return bytes ? decode_memo<TreeMemo>(kTreeMemoFormat, *bytes, kTreeMemo)
                     .value_or(TreeMemo{})
               : TreeMemo{};
}

MemoWrite TreeMemos::write(const fs::path& root, const TreeMemo& memo) {
  const bool reliable = is_reliable(memo);
  {
    const MutexLock lock(mutex_);
    of_process_.erase(root);
    if (!reliable)
      of_process_.emplace(root, memo);
  }
  return reliable ? write_memo(folder_, memo_name(root),
                               encode_memo(kTreeMemoFormat, memo, kTreeMemo))
                  : MemoWrite::kNotNeeded;
}

bool is_unchanged(const TreeMemo& memo, const fs::path& root) {
  const UniqueFd folder(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder || memo.folders.empty())
    return false;
  FileStamps stamps;
  const auto same = [&](const auto& known) {
    return stamps.below(folder.get(), known.path.c_str()) == known.stamp;
  };
  // Folders first: they show soonest that something was installed or removed.
  return std::all_of(memo.folders.begin(), memo.folders.end(), same) &&
         std::all_of(memo.files.begin(), memo.files.end(), same);
}

bool copy_digests(const TreeMemo& memo, std::vector<TreeFile>& files) {
  std::vector<TreeFile*> matches;
  matches.reserve(memo.files.size());
  auto file = files.begin();
  for (const TreeFile& known : memo.files) {
    while (file != files.end() && file->path != known.path) {
      ++file;
    }
    if (file == files.end() || file->stamp != known.stamp)
      return false;
    matches.push_back(&*file++);
  }
  for (std::size_t i = 0; i < matches.size(); ++i) {
    matches[i]->content = memo.files[i].content;
    matches[i]->names_build_time = memo.files[i].names_build_time;
    matches[i]->settled = true;
  }
  return true;
}

}  // namespace kiln::key
