#include "cache/hint_file.h"

#include <fcntl.h>

#include <cerrno>
#include <tuple>

#include "cache/layout.h"
#include "util/posix_error.h"
#include "util/unique_fd.h"

namespace kiln::cache {

Result<void> write_hint(FileSystem& file_system, const std::filesystem::path& path,
                        std::string_view text) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  const std::string folder = path.parent_path().native();
  const std::string temporary = Layout::temporary_in(folder);
  int fd = file_system.open(temporary.c_str(), kFlags, 0600);
  if (fd == -ENOENT && make_folders(file_system, folder) == 0)
    fd = file_system.open(temporary.c_str(), kFlags, 0600);
  if (fd < 0)
    return posix_error("create", temporary, -fd);
  // Not synced: its reader checks it, and after a power loss it is made again.
  int err = write_all(file_system, fd, as_bytes(text));
  if (const int closed = file_system.close(fd); err == 0)
    err = closed;
  if (err == 0)
    err = file_system.rename(temporary.c_str(), path.c_str());
  if (err == 0)
    return {};
  std::ignore = file_system.unlink(temporary.c_str());  // else trim sweeps it
  return posix_error("write", path, -err);
}

Result<std::optional<std::string>> read_hint(FileSystem& file_system,
                                             const TrustPolicy& trust,
                                             const std::filesystem::path& path) {
  const int fd = file_system.open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
  if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
    return std::nullopt;
  if (fd < 0)
    return posix_error("open", path, -fd);
  const UniqueFd owner(fd);
  struct stat info {};
  if (const int err = file_system.fstat(fd, info); err != 0)
    return posix_error("stat", path, -err);
  if (!S_ISREG(info.st_mode) || !trust.accepts(info))
    return std::nullopt;
  if (static_cast<std::uint64_t>(info.st_size) > kMaxHintBytes)
    return fail(ErrorCode::kResourceLimit, path.native() + " is over 16 MiB");
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = file_system.read(
        fd, reinterpret_cast<std::byte*>(text.data()) + done, text.size() - done);
    if (n < 0)
      return posix_error("read", path, static_cast<int>(-n));
    if (n == 0)
      break;  // it became shorter: its reader checks what is left
    done += static_cast<std::size_t>(n);
  }
  text.resize(done);
  return text;
}

}  // namespace kiln::cache
