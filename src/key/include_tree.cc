#include "key/include_tree.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "key/header_snapshot.h"
#include "key/tree_memo.h"
#include "key/tree_walk.h"
#include "util/include_directives.h"
#include "util/little_endian.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::key {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> merged(std::vector<std::string> known,
                                std::set<std::string> more) {
  if (more.empty())
    return known;
  more.insert(std::make_move_iterator(known.begin()),
              std::make_move_iterator(known.end()));
  return {more.begin(), more.end()};
}

// Reads a tree that no memo knows in its present state.
class TreeReader {
 public:
  TreeReader(const fs::path& root, std::chrono::system_clock::time_point now,
             const std::stop_token& stop)
      : root_(root), now_(now), stop_(stop) {}

  Result<IncludeTreeRead> run(TreeMemo memo, TreeMemos& memos) {
    WalkedTree walked = KILN_TRY(walk_tree(root_));
    std::vector<TreeFile> files;
    files.reserve(walked.files.size());
    for (WalkedFile& file : walked.files)
      files.push_back({std::move(file.path), file.stamp, false, std::nullopt, false});
    if (!copy_digests(memo, files))
      memo = {};
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (!files[i].content && walked.files[i].readable)
        KILN_TRY(hash(walked.root.get(), files[i]));
    }

    const bool whole = is_whole(walked, files);
    const Digest digest = digest_of_tree(files);
    memo.operands = merged(std::move(memo.operands), std::move(settled_operands_));
    if (has_new_files_ || whole) {
      memo.files.clear();
      std::copy_if(files.begin(), files.end(), std::back_inserter(memo.files),
                   [](const TreeFile& file) { return file.settled; });
      memo.folders = whole ? std::move(walked.folders) : std::vector<WalkedFolder>{};
      memo.digest = whole ? digest : Digest();
      read_.memo = memos.write(root_, memo);
    }
    read_.tree = std::make_shared<const IncludeTree>(
        root_, std::move(files),
        merged(std::move(memo.operands), std::move(other_operands_)), digest);
    return std::move(read_);
  }

 private:
  // A file without read permission, or one that has disappeared, gets no digest.
  Result<void> hash(int root, TreeFile& file) {
    ++read_.files_hashed;
    const auto read = read_stamped(root, file.path, kMaxHeaderBytes);
    if (!read) {
      if (::faccessat(root, file.path.c_str(), R_OK, AT_EACCESS) != 0 &&
          errno == EACCES)
        return {};
      return tl::unexpected(read.error());
    }
    if (!*read)
      return {};
    const StampedBytes& whole = **read;
    file.content = Digest::of(whole.bytes);
    file.stamp = whole.stamp;
    file.settled = whole.is_steady && is_settled(file.stamp, now_) &&
                   whole.bytes.size() == file.stamp.size;
    has_new_files_ |= file.settled;
    auto& operands = file.settled ? settled_operands_ : other_operands_;
    Directives found = KILN_TRY(find_directives(as_text(whole.bytes), stop_));
    file.names_build_time = found.build_time.has_value();
    for (Directive& directive : found.list) {
      if (directive.lookup != Lookup::kComputed &&
          directive.lookup != Lookup::kComputedIf)
        operands.insert(std::move(directive.operand));
    }
    return {};
  }

  [[nodiscard]] bool is_whole(const WalkedTree& walked,
                              const std::vector<TreeFile>& files) const {
    return walked.folder_stamps_suffice &&
           std::ranges::all_of(files, &TreeFile::settled) &&
           std::ranges::all_of(walked.folders, [this](const WalkedFolder& folder) {
             return is_settled(folder.stamp, now_);
           });
  }

  const fs::path& root_;
  const std::chrono::system_clock::time_point now_;
  const std::stop_token& stop_;
  IncludeTreeRead read_;
  bool has_new_files_ = false;
  std::set<std::string> settled_operands_;  // of files that the memo does not know
  std::set<std::string> other_operands_;
};

}  // namespace

Digest digest_of_tree(const std::vector<TreeFile>& files) {
  Bytes bytes;
  bytes.reserve(files.size() * 128);
  for (const auto& [path, stamp, settled, content, names_build_time] : files) {
    append_le(bytes, std::uint64_t{path.size()});
    append(bytes, as_bytes(path));
    bytes.push_back(std::byte{content.has_value()});
    if (content)
      append(bytes, content->bytes());
  }
  return Digest::of(bytes);
}

IncludeTree::IncludeTree(fs::path root, std::vector<TreeFile> files,
                         std::vector<std::string> operands, const Digest& digest)
    : root_(std::move(root)),
      files_(std::move(files)),
      operands_(std::move(operands)),
      digest_(digest) {}

const TreeFile* IncludeTree::find(std::string_view path) const {
  const auto found =
      std::ranges::lower_bound(files_, path, walks_before, &TreeFile::path);
  return found != files_.end() && found->path == path ? &*found : nullptr;
}

Result<IncludeTreeRead> read_include_tree(const fs::path& root, TreeMemos& memos,
                                          std::chrono::system_clock::time_point now,
                                          const std::stop_token& stop) {
  TreeMemo memo = memos.read(root);
  if (is_unchanged(memo, root)) {
    return IncludeTreeRead{std::make_shared<const IncludeTree>(
        root, std::move(memo.files), std::move(memo.operands), memo.digest)};
  }
  return TreeReader(root, now, stop).run(std::move(memo), memos);
}

}  // namespace kiln::key
