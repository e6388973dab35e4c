// The body of a transfer: a file without a name, or one that the caller has open, which
// kiln-remote writes or reads.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "codec/digest.h"
#include "kiln/result.h"
#include "util/bytes.h"
#include "util/file_range.h"
#include "util/fork_count.h"
#include "util/kept_fd.h"
#include "util/mutex.h"
#include "util/unique_fd.h"

namespace kiln::remote {

/// Copies share the file. Thread safety: immutable, but for the file's bytes.
class BodyFile {
 public:
  BodyFile() = default;  // none
  explicit BodyFile(UniqueFd file)
      : file_(std::make_shared<const KeptFd>(std::move(file))) {}

  /// An empty one. Errors: kIo.
  [[nodiscard]] static Result<BodyFile> make();
  /// Of a copy of `file`, which its owner may close. Errors: kIo.
  [[nodiscard]] static Result<BodyFile> copy_of(int file);
  /// For another body, whose bytes take the place of these; a large file is made empty.
  /// False where it cannot.
  [[nodiscard]] bool rewind() const;
  /// Behind the bytes appended since rewind(). Errors: kIo.
  [[nodiscard]] Result<void> append(ByteView bytes) const;

  /// -1 if there is none, or this program has closed it.
  [[nodiscard]] int descriptor() const {
    return file_ != nullptr && file_->is_ours() ? file_->get() : -1;
  }
  [[nodiscard]] Result<FileRange> range() const;
  [[nodiscard]] Result<std::uint64_t> size() const;
  /// So many bytes. Errors: kIo; kCorrupt, where it has fewer.
  [[nodiscard]] Result<Bytes> read(std::uint64_t at, std::uint64_t size) const;

  /// Of its first bytes. Errors: as read().
  [[nodiscard]] Result<Digest> sha256(std::uint64_t size) const;

 private:
  std::shared_ptr<const KeptFd> file_;
};

/// Files for one body after the other: a file system that makes and drops thousands of
/// files is slow with all others, too.
/// Thread safety: every method may run concurrently.
/// Fork safety: a forked child uses none of its parent's.
class SpareFiles {
 public:
  /// It may have bytes of an older body behind those of the next. Errors: kIo.
  [[nodiscard]] Result<BodyFile> take();
  /// For another body; nobody else may use it any more.
  void keep(const BodyFile& file);

 private:
  static constexpr std::size_t kMost = 16;
  const OwnerProcess owner_{};
  Mutex mutex_;
  std::vector<BodyFile> files_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::remote
