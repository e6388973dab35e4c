#include "util/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln {
namespace {

constexpr std::size_t kPiece = 64U << 10U;

}  // namespace

Result<std::optional<Bytes>> read_file(const std::filesystem::path& path,
                                       std::uint64_t max_bytes) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR)
      return std::nullopt;
    return posix_error("open", path, errno);
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return posix_error("stat", path, errno);
  if (!S_ISREG(info.st_mode))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is not a regular file", path.native()));
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > max_bytes) {
    return fail(ErrorCode::kResourceLimit,
                fmt::format("{} has {} bytes, over the limit of {}", path.native(),
                            size, max_bytes));
  }
  // The size is a hint: procfs says 0, sysfs says too much, and a file may grow or
  // shrink while it is read. One byte more than it says shows the end.
  Bytes bytes(size + 1);
  std::size_t done = 0;
  while (true) {
    if (done == bytes.size())
      bytes.resize(done + kPiece);
    const ssize_t n = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return posix_error("read", path, errno);
    if (n == 0)
      break;
    done += static_cast<std::size_t>(n);
    if (done > max_bytes)
      return fail(ErrorCode::kResourceLimit,
                  fmt::format("{} has over {} bytes", path.native(), max_bytes));
  }
  bytes.resize(done);
  return bytes;
}

Result<std::string> read_text_file(const std::filesystem::path& path,
                                   std::uint64_t max_bytes) {
  const auto bytes = KILN_TRY(read_file(path, max_bytes));
  if (!bytes)
    return fail(ErrorCode::kNotFound,
                fmt::format("there is no file {}", path.native()));
  return std::string(as_text(*bytes));
}

}  // namespace kiln
