#include "remote/client/body_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "util/posix_error.h"
#include "util/scratch_file.h"
#include "util/try.h"
#include "util/write_file.h"

namespace kiln::remote {
namespace {

constexpr auto kName = "the file of a transfer";
constexpr off_t kMostKept = 1 << 20;

Result<UniqueFd> copied(int file) {
  UniqueFd copy(::fcntl(file, F_DUPFD_CLOEXEC, 0));
  if (!copy)
    return posix_error("duplicate", kName, errno);
  return copy;
}

}  // namespace

Result<BodyFile> BodyFile::make() {
  return BodyFile(KILN_TRY(open_scratch(temporary_folder())));
}

Result<BodyFile> BodyFile::copy_of(int file) {
  return BodyFile(KILN_TRY(copied(file)));
}

bool BodyFile::rewind() const {
  const int file = descriptor();
  const off_t size = ::lseek(file, 0, SEEK_END);
  // To write over blocks that are there is much faster than to drop and get them.
  return size >= 0 && (size <= kMostKept || ::ftruncate(file, 0) == 0) &&
         ::lseek(file, 0, SEEK_SET) == 0;
}

Result<void> BodyFile::append(ByteView bytes) const {
  return write_all(descriptor(), bytes, scratch_name(descriptor()));
}

Result<FileRange> BodyFile::range() const {
  return FileRange::of(KILN_TRY(copied(descriptor())), std::string(kName));
}

Result<std::uint64_t> BodyFile::size() const {
  return KILN_TRY(range()).size();
}

Result<Bytes> BodyFile::read(std::uint64_t at, std::uint64_t size) const {
  return KILN_TRY(range()).read(at, size);
}

Result<Digest> BodyFile::sha256(std::uint64_t size) const {
  Sha256 hasher;
  if (size == 0)
    return hasher.finish();  // there may be no file
  const FileRange file = KILN_TRY(KILN_TRY(range()).part(0, size));
  KILN_TRY(file.read_in_steps([&](ByteView step) { hasher.update(step); }));
  return hasher.finish();
}

Result<BodyFile> SpareFiles::take() {
  BodyFile file;
  if (owner_.is_this()) {
    const MutexLock lock(mutex_);
    if (!files_.empty()) {
      file = std::move(files_.back());
      files_.pop_back();
    }
  }
  return file.descriptor() == -1 ? BodyFile::make() : file;
}

void SpareFiles::keep(const BodyFile& file) {
  const MutexLock lock(mutex_);
  if (files_.size() < kMost && file.rewind())
    files_.push_back(file);
}

}  // namespace kiln::remote
