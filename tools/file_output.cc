#include "tools/file_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "util/posix_error.h"
#include "util/unique_fd.h"

namespace kiln::tools {
namespace {

/// 0 or an errno.
int write_all(int fd, ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

}  // namespace

Result<void> write_file(const std::string& path, ByteView bytes) {
  constexpr mode_t kMode = 0644;
  if (path == "-") {
    const int err = write_all(STDOUT_FILENO, bytes);
    return err == 0 ? Result<void>() : posix_error("write", "standard output", err);
  }
  // A device or a pipe that the user names is written to, never replaced.
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  const bool in_place = std::filesystem::exists(status) && !is_regular_file(status);
  const std::string target =
      in_place ? path : fmt::format("{}.{}.tmp", path, ::getpid());
  UniqueFd file(
      ::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode));
  if (!file)
    return posix_error("open", target, errno);
  int err = write_all(file.get(), bytes);
  if (::close(file.release()) != 0 && err == 0)
    err = errno;
  if (err == 0 && !in_place && ::rename(target.c_str(), path.c_str()) != 0)
    err = errno;
  if (err == 0)
    return {};
  if (!in_place)
    std::ignore = ::unlink(target.c_str());  // the failure above matters more
  return posix_error("write", path, err);
}

}  // namespace kiln::tools
