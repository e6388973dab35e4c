#include "cache/object_header.h"

#include <algorithm>

#include "cache/layout.h"
#include "util/little_endian.h"
#include "util/try.h"

namespace kiln::cache::header {
namespace {

// A compressed section may expand a thousandfold; a larger raw size is corrupt.
constexpr std::uint64_t kMaxRawBytes = kMaxObjectBytes;

bool all_zero(ByteView bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

/// Only the text sections, from kFirstText on, may be compressed; the others are used
/// in place. An empty text has no stored bytes, so that none can hide there.
bool is_possible(std::size_t section, std::uint64_t stored, std::uint64_t raw,
                 std::uint64_t codec) {
  constexpr std::size_t kFirstText = 3;
  if (codec == 0)
    return raw == stored;
  return codec == 1 && section >= kFirstText && raw <= kMaxRawBytes &&
         (raw == 0) == (stored == 0);
}

Digest digest_at(ByteView bytes, std::size_t offset) {
  return Digest(bytes.subspan(offset).first<Digest::kSize>());
}

}  // namespace

Bytes encode(Kind kind, std::string_view target, const Digest& key,
             const Digest& payload,
             std::span<const NewSection, kSectionCount> sections) {
  std::uint64_t file_bytes = kBytes + kTrailer.size();
  for (const NewSection& section : sections) file_bytes += section.stored.size();
  Bytes out;
  out.reserve(kBytes);
  append(out, as_bytes(kMagic));
  append_le(out, kFormatVersion);
  append_le(out, static_cast<std::uint32_t>(kBytes));
  out.resize(kCheckedFrom);  // the checksum is filled in last
  append_le(out, file_bytes);
  append_le(out, static_cast<std::uint64_t>(kind));
  append(out, as_bytes(target));
  out.resize(kKey);
  append(out, key.bytes());
  append(out, payload.bytes());
  for (const auto& [stored, raw_bytes, codec] : sections) {
    append_le(out, static_cast<std::uint64_t>(stored.size()));
    append_le(out, static_cast<std::uint64_t>(raw_bytes));
    append_le(out, static_cast<std::uint64_t>(codec));
  }
  return out;
}

Result<Parsed> decode(ByteView bytes, std::uint64_t file_bytes) {
  const auto kind = load_le<std::uint64_t>(bytes, kKind);
  if (kind < 1 || kind > kKindCount)
    return fail(ErrorCode::kCorrupt, "there is no kind {}", kind);
  Parsed parsed;
  parsed.kind = static_cast<Kind>(kind);
  const std::string_view target = as_text(bytes.subspan(kTarget, kMaxTargetChars));
  parsed.target = target.substr(0, target.find('\0'));
  if (parsed.target.empty() || !all_zero(as_bytes(target.substr(parsed.target.size()))))
    return fail(ErrorCode::kCorrupt, "the target is no text");
  parsed.key = digest_at(bytes, kKey);
  parsed.payload_digest = digest_at(bytes, kPayloadDigest);
  std::uint64_t offset = kBytes;
  if (file_bytes < kBytes + kTrailer.size())
    return fail(ErrorCode::kCorrupt, "the file ends inside its header");
  const std::uint64_t end = file_bytes - kTrailer.size();
  for (std::size_t i = 0; i < kSectionCount; ++i) {
    const std::size_t at = kSections + i * kSectionBytes;
    const auto stored = load_le<std::uint64_t>(bytes, at);
    const auto raw = load_le<std::uint64_t>(bytes, at + 8);
    const auto codec = load_le<std::uint64_t>(bytes, at + 16);
    if (stored > end - offset || !is_possible(i, stored, raw, codec))
      return fail(ErrorCode::kCorrupt, "section {} is impossible", i);
    parsed.sections[i] = {offset, stored, raw, static_cast<Codec>(codec)};
    offset += stored;
  }
  if (offset != end || parsed.sections[0].stored_bytes == 0)
    return fail(ErrorCode::kCorrupt, "the sections do not fill the file");
  return parsed;
}

}  // namespace kiln::cache::header
