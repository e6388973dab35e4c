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

const char* HeldFileSystem::behind(const char* path) const {
  const std::string& folder = folder_.path.native();
  if (!std::string_view(path).starts_with(folder))
    return nullptr;
  const char* const rest = path + folder.size();
  return *rest == '\0' || *rest == '/' ? rest : nullptr;
}

std::string HeldFileSystem::reach(const std::string& path) const {
  const char* const rest = behind(path.c_str());
  // With a slash behind, the last component is the folder and not the link to it.
  return rest == nullptr ? path
                         : proc_path(folder_.fd.get()) + (*rest == '\0' ? "/." : rest);
}

}  // namespace kiln::cache
