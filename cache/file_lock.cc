#include "cache/file_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <tuple>

#include "util/fork_count.h"
#include "util/kept_fd.h"
#include "util/mutex.h"
#include "util/own_path.h"
#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln::cache {
namespace {

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
  return fail(ErrorCode::kUntrusted, "{} is not a file of this user alone: delete it",
              path.native());
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
  KeptFd fd;
  std::uint64_t offset;
  std::uint64_t bytes;
  bool is_locked = false;
  OwnerProcess owner{};
};

/// All locks that this process holds or tries to take. Never destroyed.
class FileLock::Registry {
 public:
  static Registry& instance() {
    // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): has a mutex
    static auto* const registry = new Registry;
    return *registry;
  }

  /// How often this process has forked.
  [[nodiscard]] std::uint64_t forks() {
    const MutexLock lock(mutex_);
    return forks_;
  }
  /// False if this process has forked since `forks`: the child has a descriptor that
  /// it knows nothing of.
  [[nodiscard]] bool add(Held* held, std::uint64_t forks) {
    const MutexLock lock(mutex_);
    if (forks != forks_)
      return false;
    held_.push_back(held);
    return true;
  }
  void remove(Held* held) {
    const MutexLock lock(mutex_);
    held_.remove(held);
  }

 private:
  Registry() {
    // A child shares our locks through its copies of the descriptors and would keep
    // them after our death. So it closes its copies, but unlocks nothing.
    ::pthread_atfork([] { instance().before_fork(); }, [] { instance().in_parent(); },
                     [] { instance().in_child(); });
  }

  // Clang's analysis cannot see that the mutex stays locked between the handlers.
  void before_fork() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    mutex_.lock();
    ++forks_;
  }
  void in_parent() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    mutex_.unlock();
  }
  void in_child() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    for (Held* held : held_) held->fd.reset();
    held_.clear();
    mutex_.unlock();
  }

  Mutex mutex_;  // a fork waits for it: no call of the file system is made meanwhile
  std::list<Held*> held_ KILN_GUARDED_BY(mutex_);
  std::uint64_t forks_ KILN_GUARDED_BY(mutex_) = 0;
};

void FileLock::Release::operator()(Held* held) const noexcept {
  const std::unique_ptr<Held> last(held);
  if (!held->owner.is_this())
    return;  // in a forked child the descriptor is closed already
  FileSystem& files = *held->files;
  // Explicit, because close() alone leaves it locked while a child has a copy of the
  // descriptor. If it fails, waiters go on when the heartbeats stop.
  if (held->is_locked && held->fd.is_ours())
    std::ignore =
        files.set_lock(held->fd.get(), RangeLock::kUnlock, held->offset, held->bytes);
  Registry::instance().remove(held);
  if (const int fd = held->fd.release(); fd != -1)
    std::ignore = files.close(fd);
}

/// Opens the file of the range and makes it known to forked children, which close it.
/// Null: this process has forked meanwhile. That child has an unknown copy of the
/// descriptor, which would share the lock.
Result<FileLock::Opened> FileLock::open(const Range& range) {
  constexpr int kFlags = O_RDWR | O_CREAT | kNoLinkFlags;
  FileSystem& files = *range.file_system;
  auto& registry = Registry::instance();
  const std::uint64_t forks = registry.forks();
  // Each attempt opens its own file description, so that OFD locks also exclude two
  // threads of one process.
  int fd = files.open(range.file.c_str(), kFlags, 0600);
  if (fd == -ENOENT && make_folders(files, range.file.parent_path().native()) == 0)
    fd = files.open(range.file.c_str(), kFlags, 0600);
  if (fd < 0)
    return open_error(files, range.file, fd);
  auto held = std::make_unique<Held>(
      Held{&files, KeptFd(UniqueFd(fd)), range.offset, range.bytes});
  struct stat info {};
  if (files.fstat(fd, info) != 0 || !is_lock_file(files, info, range.file))
    return refused(range.file);
  if (!registry.add(held.get(), forks))
    return nullptr;
  return Opened(held.release());
}

Result<std::optional<FileLock>> FileLock::try_lock(const Range& range) {
  constexpr int kMostTries = 10;  // else the caller tries again
  Opened held;
  for (int i = 0; i < kMostTries && held == nullptr; ++i) held = KILN_TRY(open(range));
  if (held == nullptr)
    return std::nullopt;
  const int locked = range.file_system->set_lock(held->fd.get(), RangeLock::kExclusive,
                                                 range.offset, range.bytes);
  if (locked == -EAGAIN || locked == -EACCES)
    return std::nullopt;
  if (has_no_locks(locked)) {
    return fail(ErrorCode::kUnavailable, posix_message("lock", range.file, -locked));
  }
  if (locked < 0)
    return posix_error("lock", range.file, -locked);
  held->is_locked = true;
  FileLock taken;
  taken.held_ = std::move(held);
  return taken;
}

bool FileLock::held() const {
  return held_ != nullptr && held_->owner.is_this() && held_->fd.is_ours();
}

std::optional<FileLock::Other> FileLock::other(std::uint64_t offset,
                                               std::uint64_t bytes) const {
  Other found{offset, bytes};
  if (bytes == 0 ||
      held_->files->find_lock(held_->fd.get(), found.offset, found.bytes) <= 0)
    return std::nullopt;
  return found;
}

bool FileLock::read(std::byte* to, std::size_t size, std::uint64_t offset) const {
  return held_->fd.is_ours() &&
         held_->files->pread(held_->fd.get(), to, size, held_->offset + offset) ==
             static_cast<ssize_t>(size);
}

void FileLock::write(ByteView bytes, std::uint64_t offset) const {
  if (held_->fd.is_ours())
    std::ignore = held_->files->pwrite(held_->fd.get(), bytes, held_->offset + offset);
}

int open_lock_file_to_read(FileSystem& files, const std::filesystem::path& file) {
  return files.open(file.c_str(), O_RDONLY | kNoLinkFlags, 0);
}

}  // namespace kiln::cache
