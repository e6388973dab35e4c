// The body of a transfer: a file without a name, or one that the caller has open, which
// kiln-remote writes or reads.

#pragma once

#include <cstdint>
#include <memory>

#include "codec/digest.h"
#include "kiln/result.h"
#include "util/bytes.h"
#include "util/file_range.h"
#include "util/kept_fd.h"
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
  /// Behind what was appended before. Errors: kIo.
  [[nodiscard]] Result<void> append(ByteView bytes) const;

  /// -1 if there is none, or this program has closed it.
  [[nodiscard]] int descriptor() const {
    return file_ != nullptr && file_->is_ours() ? file_->get() : -1;
  }
  [[nodiscard]] Result<std::uint64_t> size() const;
  /// So many bytes. Errors: kIo; kCorrupt, where it has fewer.
  [[nodiscard]] Result<Bytes> read(std::uint64_t at, std::uint64_t size) const;

  /// Of its first bytes. Errors: as read().
  [[nodiscard]] Result<Digest> sha256(std::uint64_t size) const;

 private:
  [[nodiscard]] Result<FileRange> range() const;

  std::shared_ptr<const KeptFd> file_;
};

}  // namespace kiln::remote
