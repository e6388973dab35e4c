#include "cache/held_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>

#include "util/mutex.h"
#include "util/posix_error.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

constexpr mode_t kPrivate = 0700;

std::string proc_path(int fd) {
  return fmt::format("/proc/self/fd/{}", fd);
}

/// The part of `path` behind `folder`, "" or from a slash on; nullptr: it is not there.
const char* behind(const std::string& folder, const char* path) {
  if (!std::string_view(path).starts_with(folder))
    return nullptr;
  const char* const rest = path + folder.size();
  return *rest == '\0' || *rest == '/' ? rest : nullptr;
}

class Opener {
 public:
  Opener(FileSystem& file_system, const TrustPolicy& trust, bool make)
      : file_system_(file_system), trust_(trust), make_(make) {}

  /// Goes on with an open folder.
  Result<void> take(int fd, const std::filesystem::path& path, const char* call) {
    if (fd == -ENOENT)
      return fail(ErrorCode::kNotFound, path.native() + " does not exist");
    if (fd < 0)
      return posix_error(call, path, -fd);
    held_ = {UniqueFd(fd), path};
    if (const int err = file_system_.fstat(held_.fd.get(), info_); err != 0)
      return posix_error("fstat", path, -err);
    if (!trust_.owner(info_.st_uid))
      return fail(ErrorCode::kUntrusted, "{} belongs to user {}", path.native(),
                  info_.st_uid);
    return {};
  }

  /// Goes into a folder of the open one. Follows no link.
  Result<void> enter(const std::string& name) {
    const std::filesystem::path path = held_.path / name;
    if (name == "..")
      return fail(ErrorCode::kUntrusted,
                  path.native() + ": another user can change it");
    constexpr int kFlags = O_PATH | O_DIRECTORY | O_NOFOLLOW;
    int fd = file_system_.open_in(held_.fd.get(), name.c_str(), kFlags);
    if (fd == -ENOENT && make_) {
      const int err = file_system_.mkdir_in(held_.fd.get(), name.c_str(), kPrivate);
      if (err != 0 && err != -EEXIST)
        return posix_error("mkdir", path, -err);
      fd = file_system_.open_in(held_.fd.get(), name.c_str(), kFlags);
    }
    if (fd == -ENOTDIR || fd == -ELOOP)
      return fail(ErrorCode::kUntrusted,
                  path.native() + " is a link, or no folder: name the folder itself");
    return take(fd, path, "open");
  }

  [[nodiscard]] bool is_private() const { return trust_.accepts(info_); }
  [[nodiscard]] int fd() const { return held_.fd.get(); }
  [[nodiscard]] const struct stat& info() const { return info_; }
  [[nodiscard]] HeldFolder done() { return std::move(held_); }

 private:
  FileSystem& file_system_;
  const TrustPolicy& trust_;
  const bool make_;
  HeldFolder held_;
  struct stat info_ {};
};

}  // namespace

Result<HeldFolder> hold(FileSystem& file_system, const TrustPolicy& trust,
                        const std::filesystem::path& path, bool make) {
  TrustPolicy::Walk walk = trust.walk(file_system, path);
  if (!walk.is_open && walk.outcome)
    return refuse(path.native() + " need not be held");
  if (!walk.is_open)
    return tl::unexpected(std::move(walk.outcome).error());
  Opener at(file_system, trust, make);
  KILN_TRY(at.take(file_system.hold_folder(walk.at.c_str()), walk.at, "open"));
  for (const std::string& name : walk.rest) KILN_TRY(at.enter(name));
  if (!at.is_private())
    KILN_TRY(at.enter(fmt::format("kiln-{}", ::geteuid())));
  struct stat reached {};
  if (file_system.stat(proc_path(at.fd()).c_str(), reached) != 0 ||
      reached.st_dev != at.info().st_dev || reached.st_ino != at.info().st_ino)
    return fail(ErrorCode::kUnavailable, "/proc is not mounted");
  HeldFolder held = at.done();
  if (!at.is_private())
    return fail(ErrorCode::kUntrusted,
                held.path.native() + " can be changed by other users");
  return held;
}

HeldFileSystem& HeldFileSystem::make(FileSystem& below, HeldFolder folder) {
  // Where leak checkers find them. NOLINTNEXTLINE: never destroyed, on purpose
  static auto* const all = new std::deque<std::unique_ptr<HeldFileSystem>>;
  static Mutex mutex;
  const MutexLock lock(mutex);
  all->emplace_back(new HeldFileSystem(below, std::move(folder)));
  return *all->back();
}

std::string HeldFileSystem::reach(const std::string& path) const {
  const char* const rest = behind(folder_.path.native(), path.c_str());
  // With a slash behind, the last component is the folder and not the link to it.
  return rest == nullptr ? path
                         : proc_path(folder_.fd.get()) + (*rest == '\0' ? "/." : rest);
}

template <typename Call>
auto HeldFileSystem::at(const char* path, const Call& call) -> decltype(call(path)) {
  if (behind(folder_.path.native(), path) == nullptr)
    return call(path);
  if (!folder_.fd || !folder_.fd.is_ours())
    return -EBADF;
  return call(reach(path).c_str());
}

int HeldFileSystem::open(const char* path, int flags, mode_t mode) {
  return at(path, [&](const char* p) { return below_.open(p, flags, mode); });
}
ssize_t HeldFileSystem::pread(int fd, std::byte* to, std::size_t size,
                              std::uint64_t offset) {
  return below_.pread(fd, to, size, offset);
}
ssize_t HeldFileSystem::write(int fd, ByteView bytes) {
  return below_.write(fd, bytes);
}
ssize_t HeldFileSystem::pwrite(int fd, ByteView bytes, std::uint64_t offset) {
  return below_.pwrite(fd, bytes, offset);
}
int HeldFileSystem::fdatasync(int fd) {
  return below_.fdatasync(fd);
}
int HeldFileSystem::fchmod(int fd, mode_t mode) {
  return below_.fchmod(fd, mode);
}
int HeldFileSystem::close(int fd) {
  return below_.close(fd);
}
int HeldFileSystem::fstat(int fd, struct stat& info) {
  return below_.fstat(fd, info);
}
int HeldFileSystem::stat(const char* path, struct stat& info) {
  return at(path, [&](const char* p) { return below_.stat(p, info); });
}
int HeldFileSystem::lstat(const char* path, struct stat& info) {
  return at(path, [&](const char* p) { return below_.lstat(p, info); });
}
int HeldFileSystem::link(const char* from, const char* to) {
  return at(from, [&](const char* f) {
    return at(to, [&](const char* t) { return below_.link(f, t); });
  });
}
int HeldFileSystem::unlink(const char* path) {
  return at(path, [&](const char* p) { return below_.unlink(p); });
}
int HeldFileSystem::rename(const char* from, const char* to) {
  return at(from, [&](const char* f) {
    return at(to, [&](const char* t) { return below_.rename(f, t); });
  });
}
int HeldFileSystem::rename_no_replace(const char* from, const char* to) {
  return at(from, [&](const char* f) {
    return at(to, [&](const char* t) { return below_.rename_no_replace(f, t); });
  });
}
int HeldFileSystem::touch(int fd) {
  return below_.touch(fd);
}
int HeldFileSystem::mkdir(const char* path, mode_t mode) {
  return at(path, [&](const char* p) { return below_.mkdir(p, mode); });
}
int HeldFileSystem::writable(const char* path) {
  return at(path, [&](const char* p) { return below_.writable(p); });
}
int HeldFileSystem::list(const char* path, std::vector<std::string>& names) {
  return at(path, [&](const char* p) { return below_.list(p, names); });
}
int HeldFileSystem::readlink(const char* path, std::string& target) {
  return at(path, [&](const char* p) { return below_.readlink(p, target); });
}
std::int64_t HeldFileSystem::type(const char* path) {
  return at(path, [&](const char* p) { return below_.type(p); });
}
int HeldFileSystem::set_lock(int fd, RangeLock how, std::uint64_t offset,
                             std::uint64_t size) {
  return below_.set_lock(fd, how, offset, size);
}
int HeldFileSystem::find_lock(int fd, std::uint64_t& offset, std::uint64_t& size) {
  return below_.find_lock(fd, offset, size);
}
int HeldFileSystem::hold_folder(const char* path) {
  return at(path, [&](const char* p) { return below_.hold_folder(p); });
}
int HeldFileSystem::open_in(int folder, const char* name, int flags) {
  return below_.open_in(folder, name, flags);
}
int HeldFileSystem::stat_in(int folder, const char* name, struct stat& info) {
  return below_.stat_in(folder, name, info);
}
int HeldFileSystem::mkdir_in(int folder, const char* name, mode_t mode) {
  return below_.mkdir_in(folder, name, mode);
}

}  // namespace kiln::cache
