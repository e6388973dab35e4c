#include "util/write_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <tuple>
#include <utility>

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

Result<NewFile> NewFile::create(std::filesystem::path path) {
  const std::filesystem::path folder =
      path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  std::string temporary = (folder / ".new-XXXXXX").native();
  UniqueFd file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file)
    return posix_error("create", temporary, errno);
  return NewFile(std::move(path), std::move(temporary), std::move(file));
}

Result<NewFile> NewFile::with(const std::filesystem::path& path, ByteView bytes) {
  if (path.has_parent_path())
    KILN_TRY(make_folder(path.parent_path()));
  auto file = KILN_TRY(create(path));
  KILN_TRY(write_all(file.descriptor(), bytes, path));
  return file;
}

NewFile::NewFile(std::filesystem::path path, std::string temporary, UniqueFd file)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      file_(std::move(file)) {}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(other.path_),
      temporary_(std::exchange(other.temporary_, "")),
      file_(std::move(other.file_)) {}

NewFile::~NewFile() {
  if (!temporary_.empty())
    std::ignore = ::unlink(temporary_.c_str());  // nothing more can be done
}

Result<void> NewFile::close_with(mode_t mode) {
  if (::fchmod(file_.get(), mode) != 0)
    return posix_error("chmod", temporary_, errno);
  if (::close(file_.release()) != 0)
    return posix_error("close", path_, errno);
  return {};
}

Result<std::filesystem::path> NewFile::exchange(mode_t mode) {
  std::error_code unknown;  // then the exchange fails
  if (std::filesystem::symlink_status(path_, unknown).type() ==
      std::filesystem::file_type::directory)
    return posix_error("rename", path_, EISDIR);  // which an exchange would move away
  KILN_TRY(close_with(mode));
  const char* const here = temporary_.c_str();
  const auto exchanges = [&] {
    return ::syscall(SYS_renameat2, AT_FDCWD, here, AT_FDCWD, path_.c_str(),
                     RENAME_EXCHANGE) == 0;
  };
  if (exchanges())
    return temporary_;
  if (errno == ENOENT) {
    if (::link(here, path_.c_str()) == 0)
      return "";
    if (errno == EEXIST && exchanges())  // another was first
      return temporary_;
  }
  if (::rename(here, path_.c_str()) != 0)  // NFS exchanges none
    return posix_error("rename", path_, errno);
  temporary_.clear();
  return "";
}

Result<void> NewFile::commit(mode_t mode) {
  KILN_TRY(close_with(mode));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return posix_error("rename", path_, errno);
  temporary_.clear();
  return {};
}

Result<void> replace_file(const std::filesystem::path& path, ByteView bytes,
                          mode_t mode) {
  return KILN_TRY(NewFile::with(path, bytes)).commit(mode);
}

}  // namespace kiln
