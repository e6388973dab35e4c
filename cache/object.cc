#include "cache/object.h"

#include <fmt/format.h>
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "cache/layout.h"
#include "cache/object_header.h"
#include "util/little_endian.h"
#include "util/try.h"
#include "util/words.h"

namespace kiln::cache {
namespace {

constexpr int kZstdLevel = 3;  // one level more: 5 % smaller, 1.5 times the cost

Result<Bytes> compress(std::string_view text) {
  if (text.empty())
    return Bytes();
  Bytes out(ZSTD_compressBound(text.size()));
  const std::size_t n =
      ZSTD_compress(out.data(), out.size(), text.data(), text.size(), kZstdLevel);
  if (ZSTD_isError(n) != 0) {
    return fail(ErrorCode::kResourceLimit, "zstd cannot compress {} bytes: {}",
                text.size(), ZSTD_getErrorName(n));
  }
  out.resize(n);
  return out;
}

Result<std::string> decompress(ByteView stored, std::size_t raw_bytes) {
  if (raw_bytes == 0)
    return std::string();
  // Checked first, so that a few corrupt bytes cannot make us allocate 512 MiB.
  if (ZSTD_getFrameContentSize(stored.data(), stored.size()) != raw_bytes)
    return fail(ErrorCode::kCorrupt, "a compressed section has not the size it states");
  std::string text(raw_bytes, '\0');
  const std::size_t n =
      ZSTD_decompress(text.data(), text.size(), stored.data(), stored.size());
  if (ZSTD_isError(n) != 0 || n != raw_bytes) {
    return fail(ErrorCode::kCorrupt, "a compressed section cannot be decompressed: {}",
                ZSTD_isError(n) != 0 ? ZSTD_getErrorName(n) : "too short");
  }
  return text;
}

void store_checksum(std::byte* file, std::size_t size) {
  const XXH128_hash_t hash =
      XXH3_128bits(file + header::kCheckedFrom, size - header::kCheckedFrom);
  Bytes bytes;
  append_le(bytes, static_cast<std::uint64_t>(hash.low64));
  append_le(bytes, static_cast<std::uint64_t>(hash.high64));
  std::copy(bytes.begin(), bytes.end(), file + header::kChecksum);
}

/// The checks of parse() before that of the checksum: `begin` has the header, if the
/// file has, and `end` the trailer.
tl::expected<void, Rejection> check_ends(ByteView begin, ByteView end,
                                         std::uint64_t size) {
  if (size < header::kBytes + header::kTrailer.size() || size > kMaxObjectBytes)
    return reject(Check::kSize, fmt::format("{} bytes are no object", size));
  if (as_text(begin.first(header::kMagic.size())) != header::kMagic)
    return reject(Check::kMagic, "it does not begin as an object does");
  const auto version = load_le<std::uint32_t>(begin, header::kVersion);
  if (version != kFormatVersion ||
      load_le<std::uint32_t>(begin, header::kHeaderBytes) != header::kBytes)
    return reject(Check::kFormat,
                  fmt::format("format {}, not {}", version, kFormatVersion));
  if (const auto stated = load_le<std::uint64_t>(begin, header::kFileBytes);
      stated != size)
    return reject(Check::kSize,
                  fmt::format("{} bytes, while its header says {}", size, stated));
  if (as_text(end.last(header::kTrailer.size())) != header::kTrailer)
    return reject(Check::kMagic, "it does not end as an object does");
  return {};
}

/// Those from the checksum on, which is `hash`.
tl::expected<header::Parsed, Rejection> check_header(ByteView begin, std::uint64_t size,
                                                     XXH128_hash_t hash,
                                                     const Digest& key) {
  if (load_le<std::uint64_t>(begin, header::kChecksum) != hash.low64 ||
      load_le<std::uint64_t>(begin, header::kChecksum + 8) != hash.high64)
    return reject(Check::kChecksum, "its bytes do not give the XXH3-128 it states");
  auto parsed = header::decode(begin, size);
  if (!parsed)
    return reject(Check::kHeader, parsed.error().message);
  if (parsed->key != key)
    return reject(Check::kKey, fmt::format("it is the object {}", parsed->key.hex()));
  return *std::move(parsed);
}

}  // namespace

std::string_view to_string(Kind kind) {
  return word_of(kind, {"unknown", "cubin", "ptx", "plan", "ltoir", "files"});
}

std::string_view to_string(Check check) {
  return word_of(
      check, {"size", "magic", "format", "checksum", "header", "key", "payload",
              "metadata", "payload_digest", "preimage_digest", "sections", "target"});
}

Result<Buffer> encode(const NewObject& object) {
  if (object.payload.empty())
    return refuse("an object without a payload is no object");
  if (object.target.empty() || object.target.size() > kMaxTargetChars) {
    return refuse("'{}' is no target of 1 to {} characters", object.target,
                  kMaxTargetChars);
  }
  const Bytes metadata = object.metadata.encode();
  const Bytes preimage = object.preimage.encode();
  const Bytes log = KILN_TRY(compress(object.log));
  const Bytes source = KILN_TRY(compress(object.source));
  const Bytes ptx = KILN_TRY(compress(object.ptx));
  const std::array<header::NewSection, header::kSectionCount> sections{{
      {object.payload, object.payload.size(), header::Codec::kRaw},
      {metadata, metadata.size(), header::Codec::kRaw},
      {preimage, preimage.size(), header::Codec::kRaw},
      {log, object.log.size(), header::Codec::kZstd},
      {source, object.source.size(), header::Codec::kZstd},
      {ptx, object.ptx.size(), header::Codec::kZstd},
  }};
  std::uint64_t size = header::kBytes + header::kTrailer.size();
  for (const header::NewSection& section : sections) size += section.stored.size();
  if (size > kMaxObjectBytes) {
    return fail(ErrorCode::kResourceLimit,
                "an object of {} bytes is over the limit of {}", size, kMaxObjectBytes);
  }
  const Bytes head = header::encode(object.kind, object.target, Digest::of(preimage),
                                    Digest::of(object.payload), sections);
  Buffer file(size);
  std::byte* at = std::copy(head.begin(), head.end(), file.data());
  for (const header::NewSection& section : sections)
    at = std::copy(section.stored.begin(), section.stored.end(), at);
  std::memcpy(at, header::kTrailer.data(), header::kTrailer.size());
  store_checksum(file.data(), file.size());
  return file;
}

Result<StoredObject> StoredObject::make(const NewObject& object) {
  auto made = parse(KILN_TRY(encode(object)), object.preimage.digest());
  if (!made) {
    return fail(ErrorCode::kCorrupt, "a new object fails its own {} check: {}",
                to_string(made.error().check), made.error().detail);
  }
  return *std::move(made);
}

tl::expected<StoredObject, Rejection> StoredObject::parse(Buffer bytes,
                                                          const Digest& key) {
  const ByteView file = bytes.view();
  auto parsed = check_ends(file, file, file.size()).and_then([&] {
    const ByteView checked = file.subspan(header::kCheckedFrom);
    return check_header(file, file.size(), XXH3_128bits(checked.data(), checked.size()),
                        key);
  });
  if (!parsed)
    return tl::unexpected(std::move(parsed).error());
  StoredObject object;
  object.kind_ = parsed->kind;
  object.key_ = parsed->key;
  object.target_ = parsed->target;
  object.payload_digest_ = parsed->payload_digest;
  object.sections_ = parsed->sections;
  object.bytes_ = std::move(bytes);
  return object;
}

Result<tl::expected<std::string, Rejection>> StoredObject::check_in_steps(
    const FileRange& file, const Digest& key,
    const std::function<void(ByteView)>& each) {
  const Bytes begin = KILN_TRY(file.read_up_to(0, header::kBytes));
  const std::uint64_t end_at =
      file.size() - std::min<std::uint64_t>(file.size(), header::kTrailer.size());
  const Bytes end = KILN_TRY(file.read_up_to(end_at, header::kTrailer.size()));
  if (auto ends = check_ends(begin, end, file.size()); !ends)
    return tl::expected<std::string, Rejection>(tl::unexpect, std::move(ends).error());
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(
      XXH3_createState(), XXH3_freeState);
  if (state == nullptr)
    return fail(ErrorCode::kResourceLimit, "no memory for a checksum");
  XXH3_128bits_reset(state.get());
  std::size_t skipped = header::kCheckedFrom;
  KILN_TRY(file.read_in_steps([&](ByteView step) {
    each(step);
    const ByteView checked = step.subspan(std::exchange(skipped, 0));
    XXH3_128bits_update(state.get(), checked.data(), checked.size());
  }));
  return check_header(begin, file.size(), XXH3_128bits_digest(state.get()), key)
      .map([](const header::Parsed& parsed) { return std::string(parsed.target); });
}

ByteView StoredObject::section(Section which) const {
  const header::Section& extent = sections_[static_cast<std::size_t>(which)];
  return bytes_.view().subspan(extent.offset, extent.stored_bytes);
}

Result<std::string> StoredObject::text(Section which) const {
  const header::Section& extent = sections_[static_cast<std::size_t>(which)];
  if (extent.codec == header::Codec::kRaw)
    return std::string(as_text(section(which)));
  return decompress(section(which), extent.raw_bytes);
}

tl::expected<void, Rejection> StoredObject::verify_fully() const {
  if (Digest::of(payload()) != payload_digest_)
    return reject(Check::kPayloadDigest,
                  "its payload does not give the SHA-256 it states");
  if (Digest::of(section(Section::kPreimage)) != key_)
    return reject(Check::kPreimageDigest, "its preimage does not give its key");
  if (const auto decoded = preimage(); !decoded)
    return reject(Check::kPreimageDigest, decoded.error().message);
  if (const auto decoded = metadata(); !decoded)
    return reject(Check::kMetadata, decoded.error().message);
  for (const Section which : {Section::kLog, Section::kSource, Section::kPtx}) {
    if (const auto decoded = text(which); !decoded)
      return reject(Check::kSections, decoded.error().message);
  }
  return {};
}

bool StoredObject::same_build(const StoredObject& other) const {
  const bool may_differ = kind_ == Kind::kPlan || kind_ == Kind::kFiles;
  if (kind_ != other.kind_ ||
      (!may_differ && !std::ranges::equal(payload(), other.payload())))
    return false;
  const auto mine = metadata();
  const auto theirs = other.metadata();
  return mine && theirs &&
         std::ranges::is_permutation(mine->entry_points, theirs->entry_points);
}

}  // namespace kiln::cache
