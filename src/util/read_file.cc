#include "util/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <span>
#include <utility>

#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln {
namespace {

constexpr std::size_t kPiece = 64U << 10U;
constexpr int kTries = 3;

tl::unexpected<Error> not_there(const std::filesystem::path& path) {
  return fail(ErrorCode::kNotFound, "there is no file {}", path.native());
}

/// A regular file, read from its start up to its end.
struct OpenFile {
  UniqueFd fd;
  const std::filesystem::path& path;
  std::uint64_t max_bytes;
  std::uint64_t size;  // as the file system says
  std::uint64_t done = 0;

  /// nullopt where there is none. Errors: as read_file.
  static Result<std::optional<OpenFile>> open(int folder,
                                              const std::filesystem::path& path,
                                              std::uint64_t max_bytes) {
    UniqueFd fd(::openat(folder, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) {
      if (errno == ENOENT || errno == ENOTDIR)
        return std::nullopt;
      return posix_error("open", path, errno);
    }
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0)
      return posix_error("stat", path, errno);
    if (!S_ISREG(info.st_mode))
      return refuse("{} is not a regular file", path.native());
    const auto size = static_cast<std::uint64_t>(info.st_size);
    if (size > max_bytes) {
      return fail(ErrorCode::kResourceLimit, "{} has {} bytes, over the limit of {}",
                  path.native(), size, max_bytes);
    }
    return OpenFile{std::move(fd), path, max_bytes, size};
  }

  /// How many bytes it has put into `to`; 0 at the end.
  Result<std::size_t> read(std::span<std::byte> to) {
    ssize_t n = -1;
    do n = ::read(fd.get(), to.data(), to.size());
    while (n < 0 && errno == EINTR);
    if (n < 0)
      return posix_error("read", path, errno);
    done += static_cast<std::uint64_t>(n);
    if (done > max_bytes)
      return fail(ErrorCode::kResourceLimit, "{} has over {} bytes", path.native(),
                  max_bytes);
    return static_cast<std::size_t>(n);
  }

  Result<Bytes> read_all() {
    // The size is a hint: procfs says 0, sysfs says too much, and a file may grow or
    // shrink while it is read. One byte more than it says shows the end.
    Bytes bytes(size + 1);
    std::size_t end = 0;
    while (true) {
      if (end == bytes.size())
        bytes.resize(end + kPiece);
      const std::size_t n = KILN_TRY(read(std::span(bytes).subspan(end)));
      if (n == 0)
        break;
      end += n;
    }
    bytes.resize(end);
    return bytes;
  }

  Result<FileStamp> stamp() const {
    if (const auto now = stamp_of(fd.get()))
      return *now;
    return posix_error("stat", path, errno);
  }
};

}  // namespace

Result<std::optional<Bytes>> read_file(const std::filesystem::path& path,
                                       std::uint64_t max_bytes) {
  auto file = KILN_TRY(OpenFile::open(AT_FDCWD, path, max_bytes));
  if (!file)
    return std::nullopt;
  return KILN_TRY(file->read_all());
}

Result<std::optional<StampedBytes>> read_stamped(int folder,
                                                 const std::filesystem::path& path,
                                                 std::uint64_t max_bytes) {
  StampedBytes read;
  for (int tries = 0; tries < kTries && !read.is_steady; ++tries) {
    auto file = KILN_TRY(OpenFile::open(folder, path, max_bytes));
    if (!file)
      return std::nullopt;
    read.stamp = KILN_TRY(file->stamp());
    read.bytes = KILN_TRY(file->read_all());
    read.is_steady = KILN_TRY(file->stamp()) == read.stamp;
  }
  return read;
}

Result<void> read_lines(const std::filesystem::path& path, std::uint64_t max_bytes,
                        const std::function<Result<void>(std::string_view)>& take) {
  auto file = KILN_TRY(OpenFile::open(AT_FDCWD, path, max_bytes));
  if (!file)
    return not_there(path);
  Bytes piece(kPiece);
  std::string line;  // that of the last piece, which has no end yet
  while (const std::size_t n = KILN_TRY(file->read(piece))) {
    std::string_view text = as_text(std::span(piece).first(n));
    for (std::size_t end = text.find('\n'); end != std::string_view::npos;
         end = text.find('\n')) {
      line += text.substr(0, end);
      KILN_TRY(take(line));
      line.clear();
      text.remove_prefix(end + 1);
    }
    line += text;
  }
  return line.empty() ? Result<void>() : take(line);
}

Result<std::string> read_text_file(const std::filesystem::path& path,
                                   std::uint64_t max_bytes) {
  const auto bytes = KILN_TRY(read_file(path, max_bytes));
  if (!bytes)
    return not_there(path);
  return std::string(as_text(*bytes));
}

}  // namespace kiln
