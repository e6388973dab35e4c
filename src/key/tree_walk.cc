#include "key/tree_walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"
#include "util/unique_handle.h"

namespace kiln::key {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFiles = 100'000;
constexpr std::size_t kMaxDepth = 64;

struct DirTraits {
  using Raw = DIR*;
  static constexpr DIR* null() { return nullptr; }
  static void close(DIR* dir) noexcept { ::closedir(dir); }
};
using UniqueDir = UniqueHandle<DirTraits>;

class Walk {
 public:
  explicit Walk(const fs::path& root) : root_(root) {}

  Result<WalkedTree> run() {
    tree_.root.reset(::open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!tree_.root && (errno == ENOENT || errno == ENOTDIR))
      return fail(ErrorCode::kNotFound, "there is no include folder {}",
                  root_.native());
    UniqueFd folder;
    if (tree_.root)
      folder.reset(::openat(tree_.root.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder)
      return posix_error("open", root_, errno);
    KILN_TRY(enter(std::move(folder)));
    return std::move(tree_);
  }

 private:
  struct Entry {
    std::string name;
    unsigned char type = DT_UNKNOWN;
  };
  using Identity = std::pair<dev_t, ino_t>;

  // Lists the open folder whose relative path is prefix_ ("" or with a '/').
  Result<void> enter(UniqueFd folder) {
    struct stat info {};
    if (::fstat(folder.get(), &info) != 0)
      return posix_error("stat", root_ / prefix_, errno);
    const Identity identity{info.st_dev, info.st_ino};
    if (std::ranges::find(above_, identity) != above_.end()) {
      tree_.folder_stamps_suffice = false;
      return {};  // a loop of links
    }
    tree_.folders.push_back(
        {prefix_.empty() ? "." : prefix_, stamps_.of(info, folder.get(), ".")});
    if (above_.size() >= kMaxDepth)
      return too_large("levels deep", kMaxDepth);
    const int fd = folder.get();
    const UniqueDir dir(::fdopendir(fd));
    if (!dir)
      return posix_error("list", root_ / prefix_, errno);
    std::ignore = folder.release();  // the DIR owns it now

    const std::vector<Entry> entries = KILN_TRY(list(dir.get()));
    above_.push_back(identity);
    for (const Entry& entry : entries) KILN_TRY(visit(fd, entry));
    above_.pop_back();
    return {};
  }

  Result<std::vector<Entry>> list(DIR* dir) const {
    std::vector<Entry> entries;
    errno = 0;
    while (const dirent* entry = ::readdir(dir)) {  // NOLINT(concurrency-mt-unsafe)
      const std::string_view name = entry->d_name;  // our own DIR: no other thread
      if (name != "." && name != "..")
        entries.push_back({std::string(name), entry->d_type});
      errno = 0;
    }
    if (errno != 0)
      return posix_error("list", root_ / prefix_, errno);
    std::ranges::sort(entries, {}, &Entry::name);
    return entries;
  }

  Result<void> visit(int folder, const Entry& entry) {
    if (entry.type == DT_DIR)
      return descend(folder, entry.name);
    if (entry.type != DT_REG && entry.type != DT_LNK && entry.type != DT_UNKNOWN)
      return {};  // to make it a file, its folder must change
    struct stat info {};
    if (::fstatat(folder, entry.name.c_str(), &info, 0) != 0) {
      // A broken link, a loop, or a file that has disappeared: the compiler finds
      // nothing there either.
      if (errno == ENOENT || errno == ELOOP || errno == EACCES || errno == ENOTDIR)
        return skip();
      return posix_error("stat", root_ / (prefix_ + entry.name), errno);
    }
    if (S_ISDIR(info.st_mode))
      return descend(folder, entry.name);
    if (!S_ISREG(info.st_mode))
      return skip();
    return add(
        {prefix_ + entry.name, stamps_.of(info, folder, entry.name.c_str()), true});
  }

  Result<void> descend(int folder, const std::string& name) {
    UniqueFd inner(::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!inner && (errno == ENOENT || errno == ENOTDIR))
      return skip();  // it has disappeared
    if (!inner && errno == EACCES)
      return add({prefix_ + name + '/', {}, false});
    if (!inner)
      return posix_error("open", root_ / (prefix_ + name), errno);
    const std::size_t size = prefix_.size();
    prefix_.append(name).push_back('/');
    KILN_TRY(enter(std::move(inner)));
    prefix_.resize(size);
    return {};
  }

  Result<void> skip() {
    tree_.folder_stamps_suffice = false;
    return {};
  }

  Result<void> add(WalkedFile file) {
    if (tree_.files.size() >= kMaxFiles)
      return too_large("files", kMaxFiles);
    tree_.folder_stamps_suffice &= file.readable;
    tree_.files.push_back(std::move(file));
    return {};
  }

  [[nodiscard]] tl::unexpected<Error> too_large(std::string_view what,
                                                std::size_t limit) const {
    return fail(ErrorCode::kResourceLimit,
                "{} has over {} {}: name the toolkit's own include folder",
                root_.native(), limit, what);
  }

  const fs::path& root_;
  std::string prefix_;
  std::vector<Identity> above_;
  FileStamps stamps_;
  WalkedTree tree_;
};

}  // namespace

Result<WalkedTree> walk_tree(const fs::path& root) {
  return Walk(root).run();
}

bool walks_before(std::string_view a, std::string_view b) {
  // '/' sorts before every other byte, which keeps a folder's files together.
  return std::lexicographical_compare(
      a.begin(), a.end(), b.begin(), b.end(), [](char left, char right) {
        const auto rank = [](char c) {
          return c == '/' ? 0 : 1 + static_cast<unsigned char>(c);
        };
        return rank(left) < rank(right);
      });
}

}  // namespace kiln::key
