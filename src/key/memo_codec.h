// Encodes numbers, texts, digests, stamps and lists in memos: little-endian, a text
// after its length, a list after its count. One function per type, for both of the
// classes here, says what a memo has of it. A reader of truncated bytes reports that
// once, at the end.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "codec/digest.h"
#include "util/bytes.h"
#include "util/file_stamp.h"
#include "util/little_endian.h"

namespace kiln::key {

/// Thread safety: none.
class MemoWriter {
 public:
  /// Flags and enumerators are numbers, too.
  template <typename Number>
  void number(const Number& value) {
    append_le(bytes_, static_cast<std::uint64_t>(value));
  }
  void text(std::string_view value) {
    number(value.size());
    append(bytes_, as_bytes(value));
  }
  void digest(const Digest& value) { append(bytes_, value.bytes()); }
  template <typename List, typename Code>
  void each(const List& list, const Code& code) {
    number(list.size());
    for (const auto& element : list) code(*this, element);
  }
  /// What a reader knows without the memo.
  template <typename Value>
  void implied(const Value& /*value*/, const Value& /*always*/) {}

  [[nodiscard]] Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

/// Reads what MemoWriter wrote; zeros and empty texts after the end of the bytes.
/// Thread safety: none.
class MemoReader {
 public:
  explicit MemoReader(ByteView bytes) : rest_(bytes) {}

  template <typename Number>
  void number(Number& value) {
    const ByteView bytes = take(sizeof(std::uint64_t));
    value = static_cast<Number>(bytes.empty() ? 0 : load_le<std::uint64_t>(bytes, 0));
  }
  void text(std::string& value) {
    std::uint64_t size = 0;
    number(size);
    value = as_text(take(size));
  }
  void digest(Digest& value) {
    const ByteView bytes = take(Digest::kSize);
    value = bytes.empty() ? Digest() : Digest(bytes.first<Digest::kSize>());
  }
  template <typename List, typename Code>
  void each(List& list, const Code& code) {
    std::uint64_t left = 0;
    for (number(left); left > 0 && good_; --left) code(*this, list.emplace_back());
  }
  template <typename Value>
  void implied(Value& value, const Value& always) {
    value = always;
  }

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

/// A memo has reliable stamps alone.
inline constexpr auto kMemoStamp = [](auto& codec, auto& stamp) {
  auto& [device, inode, size, mtime_ns, ctime_ns, reliable] = stamp;
  codec.number(device);
  codec.number(inode);
  codec.number(size);
  codec.number(mtime_ns);
  codec.number(ctime_ns);
  codec.implied(reliable, true);
};

template <typename Value, typename Code>
[[nodiscard]] Bytes encode_memo(std::uint64_t format, const Value& value,
                                const Code& code) {
  MemoWriter out;
  out.number(format);
  code(out, value);
  return out.take();
}

/// nullopt: not of that format, or damaged.
template <typename Value, typename Code>
[[nodiscard]] std::optional<Value> decode_memo(std::uint64_t format, ByteView bytes,
                                               const Code& code) {
  MemoReader in(bytes);
  std::uint64_t found = 0;
  in.number(found);
  Value value;
  if (found == format)
    code(in, value);
  return found == format && in.at_end() ? std::optional(std::move(value))
                                        : std::nullopt;
}

}  // namespace kiln::key
