#include "key/include_tree.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "key/directives.h"
#include "key/memo_codec.h"
#include "key/tree_walk.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::key {
namespace {

namespace fs = std::filesystem;
using cache::Digest;

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{64} << 20U;
constexpr std::uint64_t kMemoFormat = 1;

Digest digest_of(const std::vector<TreeFile>& files) {
  Bytes bytes;
  bytes.reserve(files.size() * 128);
  for (const TreeFile& file : files) {
    append_le(bytes, std::uint64_t{file.path.size()});
    append(bytes, as_bytes(file.path));
    bytes.push_back(std::byte{file.content.has_value()});
    if (file.content)
      append(bytes, file.content->bytes());
  }
  return Digest::of(bytes);
}

// What the memo of one tree holds: its settled files, in the walk's order, and the
// operands found in them.
struct TreeMemo {
  std::vector<TreeFile> files;
  std::vector<std::string> operands;
};

std::string memo_name(const fs::path& root) {
  return "tree-" + Digest::of(as_bytes(root.native())).hex();
}

Bytes encode(const TreeMemo& memo) {
  MemoWriter out;
  out.number(kMemoFormat);
  out.number(memo.files.size());
  for (const TreeFile& file : memo.files) {
    out.text(file.path);
    out.stamp(file.stamp);
    out.digest(*file.content);
  }
  out.number(memo.operands.size());
  for (const std::string& operand : memo.operands) out.text(operand);
  return Bytes(out.bytes().begin(), out.bytes().end());
}

std::optional<TreeMemo> decode(ByteView bytes) {
  MemoReader in(bytes);
  if (in.number() != kMemoFormat)
    return std::nullopt;
  TreeMemo memo;
  for (std::uint64_t left = in.number(); left > 0 && in.good(); --left) {
    TreeFile file;
    file.path = in.text();
    file.stamp = in.stamp();
    file.content = in.digest();
    file.settled = true;
    memo.files.push_back(std::move(file));
  }
  for (std::uint64_t left = in.number(); left > 0 && in.good(); --left)
    memo.operands.emplace_back(in.text());
  if (!in.at_end())
    return std::nullopt;
  return memo;
}

// Takes over the memo's digests into `files`; false, and nothing taken over, unless
// every file of the memo is still there as it was. A partial match is not used, since
// the memo's operands belong to all of its files.
bool adopt(TreeMemo& memo, std::vector<TreeFile>& files) {
  std::vector<TreeFile*> matches;
  matches.reserve(memo.files.size());
  auto file = files.begin();
  for (const TreeFile& known : memo.files) {
    while (file != files.end() && file->path != known.path) ++file;
    if (file == files.end() || file->stamp != known.stamp)
      return false;
    matches.push_back(&*file++);
  }
  for (std::size_t i = 0; i < matches.size(); ++i) {
    matches[i]->content = memo.files[i].content;
    matches[i]->settled = true;
  }
  return true;
}

// Hashes one file and adds its operands. One that may not be read stays without a
// digest; one that has gone since the walk, too.
Result<void> read_into(const fs::path& root, TreeFile& file,
                       std::set<std::string>& operands) {
  const fs::path path = root / file.path;
  const auto bytes = read_file(path, kMaxFileBytes);
  if (!bytes) {
    if (::faccessat(AT_FDCWD, path.c_str(), R_OK, AT_EACCESS) != 0 && errno == EACCES)
      return {};
    return tl::unexpected(bytes.error());
  }
  if (!*bytes)
    return {};
  file.content = Digest::of(**bytes);
  for (Directive& directive : find_directives(as_text(**bytes)).list) {
    if (directive.lookup != Lookup::kComputed &&
        directive.lookup != Lookup::kComputedIf)
      operands.insert(std::move(directive.operand));
  }
  return {};
}

std::vector<std::string> merged(std::vector<std::string> known,
                                std::set<std::string> more) {
  if (more.empty())
    return known;  // the usual case, and a copy of thousands of texts saved
  more.insert(std::make_move_iterator(known.begin()),
              std::make_move_iterator(known.end()));
  return {more.begin(), more.end()};
}

}  // namespace

IncludeTree::IncludeTree(fs::path root, std::vector<TreeFile> files,
                         std::vector<std::string> operands)
    : root_(std::move(root)),
      files_(std::move(files)),
      operands_(std::move(operands)),
      digest_(digest_of(files_)) {}

const TreeFile* IncludeTree::find(std::string_view path) const {
  const auto found =
      std::lower_bound(files_.begin(), files_.end(), path,
                       [](const TreeFile& file, std::string_view wanted) {
                         return walks_before(file.path, wanted);
                       });
  return found != files_.end() && found->path == path ? &*found : nullptr;
}

Result<IncludeTreeRead> read_include_tree(const fs::path& root,
                                          const fs::path& memo_folder,
                                          std::chrono::system_clock::time_point now) {
  std::vector<WalkedFile> walked = KILN_TRY(walk_tree(root));
  std::vector<TreeFile> files;
  files.reserve(walked.size());
  for (WalkedFile& file : walked)
    files.push_back({std::move(file.path), file.stamp, false, std::nullopt});

  TreeMemo memo;
  if (const auto bytes = read_memo(memo_folder, memo_name(root)))
    memo = decode(*bytes).value_or(TreeMemo{});
  if (!adopt(memo, files))
    memo = {};

  IncludeTreeRead read;
  std::set<std::string> settled_operands;  // of the files that the memo does not know
  std::set<std::string> other_operands;
  bool learned = false;
  for (std::size_t i = 0; i < files.size(); ++i) {
    TreeFile& file = files[i];
    if (file.content || !walked[i].readable)
      continue;
    ++read.files_hashed;
    const bool settled = is_settled(file.stamp, now);
    KILN_TRY(read_into(root, file, settled ? settled_operands : other_operands));
    file.settled = settled && file.content;
    learned |= file.settled;
  }
  memo.operands = merged(std::move(memo.operands), std::move(settled_operands));
  if (learned) {
    memo.files.clear();
    std::copy_if(files.begin(), files.end(), std::back_inserter(memo.files),
                 [](const TreeFile& file) { return file.settled; });
    read.memo = write_memo(memo_folder, memo_name(root), encode(memo));
  }
  read.tree = std::make_shared<const IncludeTree>(
      root, std::move(files),
      merged(std::move(memo.operands), std::move(other_operands)));
  return read;
}

}  // namespace kiln::key
