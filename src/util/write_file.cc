#include "util/write_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <tuple>

#include "util/file_size_limit.h"
#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln {

Result<void> write_all(int fd, ByteView bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = without_file_size_signal(
        [&] { return ::write(fd, bytes.data(), bytes.size()); });
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return posix_error("write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> create_file(const std::filesystem::path& path, ByteView bytes,
                         mode_t mode) {
  UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file)
    return posix_error("create", path, errno);
  KILN_TRY(write_all(file.get(), bytes, path));
  if (::close(file.release()) != 0)
    return posix_error("close", path, errno);
  return {};
}

Result<void> make_folder(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST)
    return {};
  return posix_error("mkdir", path, errno);
}

Result<void> replace_file(const std::filesystem::path& path, ByteView bytes,
                          mode_t mode) {
  const std::filesystem::path folder =
      path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  KILN_TRY(make_folder(folder));
  std::string temporary = (folder / ".new-XXXXXX").native();
  UniqueFd file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file)
    return posix_error("create", temporary, errno);
  Result<void> done = write_all(file.get(), bytes, path);
  if (done && ::fchmod(file.get(), mode) != 0)
    done = posix_error("chmod", temporary, errno);
  if (::close(file.release()) != 0 && done)
    done = posix_error("close", path, errno);
  if (done && ::rename(temporary.c_str(), path.c_str()) != 0)
    done = posix_error("rename", path, errno);
  if (!done)
    std::ignore = ::unlink(temporary.c_str());  // report the first error
  return done;
}

}  // namespace kiln
