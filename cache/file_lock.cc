#include "cache/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <tuple>

#include "util/fork_count.h"
#include "util/mutex.h"
#include "util/own_path.h"
#include "util/posix_error.h"
#include "util/unique_fd.h"

namespace kiln::cache {
namespace {

// Another user may put a link or a FIFO here: O_NOFOLLOW refuses the link, O_NONBLOCK
// does not wait for the FIFO.
constexpr int kLockFileFlags = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

bool has_no_locks(int err) {
  return err == -ENOLCK || err == -ENOSYS || err == -EOPNOTSUPP || err == -EINVAL;
}

/// True if a record may be written into the file: regular, our own, and without a
/// second hard link.
bool is_lock_file(FileSystem& files, const struct stat& info,
                  const std::filesystem::path& path) {
  return S_ISREG(info.st_mode) && info.st_nlink <= 1 &&
         is_trusted(info, [&]() -> std::optional<uid_t> {
           struct stat folder {};
           if (files.stat(path.parent_path().c_str(), folder) != 0)
             return std::nullopt;
           return folder.st_uid;
         });
}

tl::unexpected<Error> refused(const std::filesystem::path& path) {
  return fail(
      ErrorCode::kUntrusted,
      fmt::format("{} is not a file of this user alone: delete it", path.native()));
}

/// A file that cannot be opened may be a link, a FIFO or not writable for this user.
tl::unexpected<Error> open_error(FileSystem& files, const std::filesystem::path& path,
                                 int err) {
  struct stat info {};
  if (files.lstat(path.c_str(), info) == 0 && !is_lock_file(files, info, path))
    return refused(path);
  return posix_error("open", path, -err);
}

}  // namespace

struct FileLock::Held {
  FileSystem* files;
  int fd;
  std::uint64_t offset;
  std::uint64_t bytes;
  OwnerProcess owner{};
};

/// All locks that this process holds. Never destroyed.
class FileLock::Registry {
 public:
  static Registry& instance() {
    // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): has a mutex
    static auto* const registry = new Registry;
    return *registry;
  }

  Mutex mutex;

  void add(Held* held) KILN_REQUIRES(mutex) { held_.push_back(held); }
  void remove(Held* held) KILN_REQUIRES(mutex) { held_.remove(held); }

 private:
  Registry() {
    // A child shares our locks through its copies of the descriptors and would keep
    // them after our death. So it closes its copies, but unlocks nothing.
    ::pthread_atfork([] { instance().before_fork(); }, [] { instance().in_parent(); },
                     [] { instance().in_child(); });
  }

  // Clang's analysis cannot see that the mutex stays locked between the handlers.
  void before_fork() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) { mutex.lock(); }
  void in_parent() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) { mutex.unlock(); }
  void in_child() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    for (const Held* held : held_) ::close(held->fd);
    held_.clear();
    mutex.unlock();
  }

  std::list<Held*> held_ KILN_GUARDED_BY(mutex);
};

void FileLock::Release::operator()(Held* held) const noexcept {
  const std::unique_ptr<Held> last(held);
  if (!held->owner.is_this())
    return;  // in a forked child the descriptor is closed already
  auto& registry = Registry::instance();
  const MutexLock lock(registry.mutex);
  registry.remove(held);
  FileSystem& files = *held->files;
  // Explicit, because close() alone leaves it locked while a child has a copy of the
  // descriptor. If it fails, waiters go on when the heartbeats stop.
  std::ignore = files.set_lock(held->fd, RangeLock::kUnlock, held->offset, held->bytes);
  std::ignore = files.close(held->fd);
}

Result<std::optional<FileLock>> FileLock::try_lock(const Range& range) {
  constexpr int kFlags = O_RDWR | O_CREAT | kLockFileFlags;
  FileSystem& files = *range.file_system;
  auto& registry = Registry::instance();
  // Held from open to add(), so that no fork happens in between.
  const MutexLock lock(registry.mutex);
  // Each attempt opens its own file description, so that OFD locks also exclude two
  // threads of one process.
  int fd = files.open(range.file.c_str(), kFlags, 0600);
  if (fd == -ENOENT && make_folders(files, range.file.parent_path().native()) == 0)
    fd = files.open(range.file.c_str(), kFlags, 0600);
  if (fd < 0)
    return open_error(files, range.file, fd);
  UniqueFd owner(fd);
  struct stat info {};
  if (files.fstat(fd, info) != 0 || !is_lock_file(files, info, range.file))
    return refused(range.file);
  const int locked =
      files.set_lock(fd, RangeLock::kExclusive, range.offset, range.bytes);
  if (locked == -EAGAIN || locked == -EACCES)
    return std::nullopt;
  if (has_no_locks(locked)) {
    return fail(ErrorCode::kUnavailable,
                posix_error("lock", range.file, -locked).value().message);
  }
  if (locked < 0)
    return posix_error("lock", range.file, -locked);
  auto held = std::make_unique<Held>(Held{&files, fd, range.offset, range.bytes});
  registry.add(held.get());
  std::ignore = owner.release();
  FileLock taken;
  taken.held_.reset(held.release());
  return taken;
}

bool FileLock::held() const {
  return held_ != nullptr && held_->owner.is_this();
}

std::optional<FileLock::Other> FileLock::other(std::uint64_t offset,
                                               std::uint64_t bytes) const {
  Other found{offset, bytes};
  if (bytes == 0 || held_->files->find_lock(held_->fd, found.offset, found.bytes) <= 0)
    return std::nullopt;
  return found;
}

bool FileLock::read(std::byte* to, std::size_t size, std::uint64_t offset) const {
  return held_->files->pread(held_->fd, to, size, held_->offset + offset) ==
         static_cast<ssize_t>(size);
}

void FileLock::write(ByteView bytes, std::uint64_t offset) const {
  std::ignore = held_->files->pwrite(held_->fd, bytes, held_->offset + offset);
}

int open_lock_file_to_read(FileSystem& files, const std::filesystem::path& file) {
  return files.open(file.c_str(), O_RDONLY | kLockFileFlags, 0);
}

}  // namespace kiln::cache
