// Encodes numbers, texts, digests and stamps in memos: little-endian, a text after its
// length. A reader of truncated bytes reports that once, at the end.

#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include "codec/digest.h"
#include "util/bytes.h"
#include "util/file_stamp.h"
#include "util/little_endian.h"

namespace kiln::key {

/// Thread safety: none.
class MemoWriter {
 public:
  void number(std::uint64_t value) { append_le(bytes_, value); }
  void text(std::string_view value) {
    number(value.size());
    append(bytes_, as_bytes(value));
  }
  void digest(const Digest& value) { append(bytes_, value.bytes()); }
  /// A memo has reliable stamps alone.
  void stamp(const FileStamp& value) {
    const auto& [device, inode, size, mtime_ns, ctime_ns, reliable] = value;
    std::ignore = reliable;
    number(device);
    number(inode);
    number(size);
    number(static_cast<std::uint64_t>(mtime_ns));
    number(static_cast<std::uint64_t>(ctime_ns));
  }
  [[nodiscard]] ByteView bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

/// Reads what MemoWriter wrote; zeros and empty texts after the end of the bytes. Texts
/// point into the bytes. Thread safety: none.
class MemoReader {
 public:
  explicit MemoReader(ByteView bytes) : rest_(bytes) {}

  [[nodiscard]] std::uint64_t number() {
    const ByteView bytes = take(sizeof(std::uint64_t));
    return bytes.empty() ? 0 : load_le<std::uint64_t>(bytes, 0);
  }
  [[nodiscard]] std::string_view text() { return as_text(take(number())); }
  [[nodiscard]] Digest digest() {
    const ByteView bytes = take(Digest::kSize);
    return bytes.empty() ? Digest() : Digest(bytes.first<Digest::kSize>());
  }
  [[nodiscard]] FileStamp stamp() {
    FileStamp stamp;
    auto& [device, inode, size, mtime_ns, ctime_ns, reliable] = stamp;
    device = number();
    inode = number();
    size = number();
    mtime_ns = static_cast<std::int64_t>(number());
    ctime_ns = static_cast<std::int64_t>(number());
    reliable = true;
    return stamp;
  }

  /// False once a read went beyond the end. Loops over a count check it.
  [[nodiscard]] bool good() const { return good_; }
  /// Whether exactly all bytes were read.
  [[nodiscard]] bool at_end() const { return good_ && rest_.empty(); }

 private:
  ByteView take(std::uint64_t size) {
    if (size > rest_.size()) {
      good_ = false;
      rest_ = {};
      return {};
    }
    const ByteView taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }

  ByteView rest_;
  bool good_ = true;
};

}  // namespace kiln::key
