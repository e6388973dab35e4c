#include "util/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "util/file_size_limit.h"
#include "util/posix_error.h"
#include "util/try.h"

namespace kiln {
namespace {

/// Of a line that another process could not finish.
bool ends_in_a_line(const std::filesystem::path& path, const struct stat& info) {
  if (!S_ISREG(info.st_mode) || info.st_size == 0)
    return false;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char last = '\n';
  return file && ::pread(file.get(), &last, 1, info.st_size - 1) == 1 && last != '\n';
}

}  // namespace

Result<std::unique_ptr<LineFile>> LineFile::open(const std::filesystem::path& path,
                                                 Takes takes) {
  constexpr mode_t kMode = 0644;
  // O_NONBLOCK: a pipe without a reader must not block the host process.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  const int follow = takes == Takes::kOwnFiles ? O_NOFOLLOW : 0;
  UniqueFd file(::open(path.c_str(), kFlags | follow, kMode));
  if (!file)
    return posix_error("open", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return posix_error("stat", path, errno);
  if (takes == Takes::kOwnFiles && info.st_uid != ::geteuid())
    return fail(ErrorCode::kIo, "{} is another user's", path.native());
  if (takes != Takes::kAnyFile && !S_ISREG(info.st_mode))
    return fail(ErrorCode::kIo, "{} is no regular file: no lines can be added to it",
                path.native());
  auto lines = std::unique_ptr<LineFile>(new LineFile(std::move(file), path));
  lines->is_cut_off_ = ends_in_a_line(path, info);
  return lines;
}

LineFile::LineFile(KeptFd file, std::filesystem::path path)
    : file_(std::move(file)), path_(std::move(path)) {}

Result<void> LineFile::add(std::string line) {
  if (!file_.is_ours())
    return fail(ErrorCode::kIo, "this program has closed the file");
  const bool ends_another = is_cut_off_;
  if (ends_another)
    line.insert(0, 1, '\n');
  const ssize_t written = without_file_size_signal(
      [&] { return ::write(file_.get(), line.data(), line.size()); });
  const int err = errno;
  if (written == static_cast<ssize_t>(line.size())) {
    if (ends_another)
      is_cut_off_ =
          false;  // an empty line at worst, where another is cut off meanwhile
    return {};
  }
  if (written > 0)
    is_cut_off_ = true;
  return posix_error("write", path_, written < 0 ? err : ENOSPC);
}

}  // namespace kiln
