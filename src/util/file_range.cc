#include "util/file_range.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "util/posix_error.h"
#include "util/try.h"

namespace kiln {
namespace {

tl::unexpected<Error> cut_off(const std::string& name) {
  return fail(ErrorCode::kCorrupt, "{} is cut off", name);
}

}  // namespace

Result<FileRange> FileRange::open(const std::filesystem::path& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR)
      return fail(ErrorCode::kNotFound, "there is no file {}", path.native());
    return posix_error("open", path, errno);
  }
  return of(std::move(file), path.native());
}

Result<FileRange> FileRange::of(UniqueFd file, std::string name) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return posix_error("stat", name, errno);
  if (!S_ISREG(info.st_mode))
    return fail(ErrorCode::kIo, "{} is not a regular file", name);
  return FileRange(std::make_shared<const UniqueFd>(std::move(file)),
                   std::make_shared<const std::string>(std::move(name)), 0,
                   static_cast<std::uint64_t>(info.st_size));
}

Result<Bytes> FileRange::read(std::uint64_t offset, std::uint64_t count) const {
  if (offset > size_ || count > size_ - offset)
    return cut_off(name());
  Bytes bytes(count);
  std::size_t done = 0;
  while (done < count) {
    const ssize_t n = ::pread(file_->get(), bytes.data() + done, count - done,
                              static_cast<off_t>(start_ + offset + done));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return posix_error("read", name(), errno);
    if (n == 0)
      return cut_off(name());
    done += static_cast<std::size_t>(n);
  }
  return bytes;
}

Result<Bytes> FileRange::read_up_to(std::uint64_t offset, std::uint64_t count) const {
  return read(offset, std::min(count, size_ - std::min(offset, size_)));
}

Result<void> FileRange::read_in_steps(const std::function<void(ByteView)>& each) const {
  for (std::uint64_t at = 0; at < size_; at += kStep)
    each(KILN_TRY(read_up_to(at, kStep)));
  return {};
}

Result<FileRange> FileRange::part(std::uint64_t offset, std::uint64_t size) const {
  if (offset > size_ || size > size_ - offset)
    return cut_off(name());
  return FileRange(file_, name_, start_ + offset, size);
}

}  // namespace kiln
