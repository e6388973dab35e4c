// A range of an open file of which only a few bytes are read: a library, or a member of
// an archive. No mmap, so that a truncation cannot raise SIGBUS.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kiln/result.h"
#include "util/bytes.h"
#include "util/unique_fd.h"

namespace kiln {

/// Copies share the descriptor. Thread safety: immutable.
class FileRange {
 public:
  /// A whole regular file; never blocks on a FIFO. Errors: kNotFound, kIo.
  [[nodiscard]] static Result<FileRange> open(const std::filesystem::path& path);
  /// The same of an open file, which messages call `name`. Errors: kIo.
  [[nodiscard]] static Result<FileRange> of(UniqueFd file, std::string name);

  [[nodiscard]] const std::string& name() const { return *name_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }

  /// Exactly `count` bytes at `offset`. Errors: kCorrupt ("<name> is cut off"), kIo.
  [[nodiscard]] Result<Bytes> read(std::uint64_t offset, std::uint64_t count) const;
  /// As many of them as the range has. Errors: kCorrupt, kIo.
  [[nodiscard]] Result<Bytes> read_up_to(std::uint64_t offset,
                                         std::uint64_t count) const;
  /// All of it, in steps of at most kStep bytes, in order. Errors: kCorrupt, kIo.
  [[nodiscard]] Result<void> read_in_steps(
      const std::function<void(ByteView)>& each) const;
  static constexpr std::uint64_t kStep = 1U << 20U;
  /// A range inside this one, under the same name. Errors: kCorrupt.
  [[nodiscard]] Result<FileRange> part(std::uint64_t offset, std::uint64_t size) const;

 private:
  FileRange(std::shared_ptr<const UniqueFd> file,
            std::shared_ptr<const std::string> name, std::uint64_t start,
            std::uint64_t size)
      : file_(std::move(file)), name_(std::move(name)), start_(start), size_(size) {}

  std::shared_ptr<const UniqueFd> file_;
  std::shared_ptr<const std::string> name_;
  std::uint64_t start_;
  std::uint64_t size_;
};

}  // namespace kiln
