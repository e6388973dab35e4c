#include "util/line_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "util/file_size_limit.h"
#include "util/posix_error.h"

namespace kiln {

Result<std::unique_ptr<LineFile>> LineFile::open(const std::filesystem::path& path,
                                                 Takes takes) {
  constexpr mode_t kMode = 0644;
  // O_NONBLOCK: a pipe without a reader must not block the host process.
  UniqueFd file(::open(path.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, kMode));
  if (!file)
    return posix_error("open", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return posix_error("stat", path, errno);
  if (takes == Takes::kRegularFiles && !S_ISREG(info.st_mode))
    return fail(ErrorCode::kIo,
                fmt::format("{} is no regular file: no lines can be added to it",
                            path.native()));
  return std::unique_ptr<LineFile>(new LineFile(std::move(file), path));
}

LineFile::LineFile(KeptFd file, std::filesystem::path path)
    : file_(std::move(file)), path_(std::move(path)) {}

Result<void> LineFile::add(std::string line) {
  if (!file_.is_ours())
    return fail(ErrorCode::kIo, "this program has closed the file");
  if (is_cut_off_.exchange(false))
    line.insert(0, 1, '\n');
  const ssize_t written = without_file_size_signal(
      [&] { return ::write(file_.get(), line.data(), line.size()); });
  const int err = errno;
  if (written == static_cast<ssize_t>(line.size()))
    return {};
  // Of nothing that was written the newline is still missing.
  is_cut_off_ = written > 0 || line.front() == '\n';
  return posix_error("write", path_, written < 0 ? err : ENOSPC);
}

}  // namespace kiln
