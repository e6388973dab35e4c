#include "cache/pack_format.h"

#include <array>
#include <tuple>

#include "codec/field_codec.h"
#include "util/little_endian.h"
#include "util/try.h"

namespace kiln::cache {

PackKind pack_kind(Kind kind) {
  constexpr std::array kKinds{PackKind::kCubin, PackKind::kPtx, PackKind::kPlan,
                              PackKind::kLtoIr, PackKind::kFiles};
  return kKinds.at(static_cast<std::size_t>(kind) - 1);  // from kCubin on
}

namespace pack {
namespace {

constexpr auto kHeaderFields = [](auto& codec, auto& header) {
  auto& [producer, name, created_ns, serial, toolchains] = header;
  codec("producer", producer);
  codec("name", name);
  codec("created_ns", created_ns);
  codec("serial", serial);
  codec("toolchain", toolchains);
};

constexpr std::uint32_t number_of(PackKind kind) {
  return static_cast<std::uint32_t>(kind);
}

Result<PackHeader> decode_fields(ByteView header) {
  const auto size = load_le<std::uint64_t>(header, kFieldBytesAt);
  if (size > header.size() - kFieldsAt)
    return fail(ErrorCode::kCorrupt,
                "the fields of its header are longer than its header");
  const Fields fields = KILN_TRY(Fields::decode(header.subspan(kFieldsAt, size)));
  return read_fields<PackHeader>(fields, "its header", kHeaderFields);
}

}  // namespace

std::uint64_t aligned(std::uint64_t at) {
  return (at + kAlignment - 1) / kAlignment * kAlignment;
}

Result<Bytes> encode_header(const PackHeader& header) {
  const Bytes encoded = fields_of(header, kHeaderFields).encode();
  const std::uint64_t size = aligned(kFieldsAt + encoded.size());
  if (size > kMostHeaderBytes)
    return refuse("a pack's header of {} bytes is over {}", size, kMostHeaderBytes);
  Bytes bytes;
  append(bytes, as_bytes(kMagic));
  append_le(bytes, kPackVersion);
  append_le(bytes, static_cast<std::uint32_t>(size));
  append_le(bytes, std::uint64_t{encoded.size()});
  append(bytes, encoded);
  bytes.resize(size);
  return bytes;
}

Result<std::uint32_t> version_of(ByteView header) {
  if (as_text(header.first(kMagic.size())) != kMagic)
    return fail(ErrorCode::kCorrupt, "it does not begin as a pack does");
  const auto version = load_le<std::uint32_t>(header, kVersionAt);
  if (version > kPackVersion)
    return fail(ErrorCode::kUnavailable,
                "it has format {}, and this Kiln reads formats up to {}", version,
                kPackVersion);
  const auto size = load_le<std::uint32_t>(header, kHeaderBytesAt);
  const std::size_t most = version == 1 ? kLeastHeaderBytes : kMostHeaderBytes;
  if (version == 0 || size < kLeastHeaderBytes || size > most || size % kAlignment != 0)
    return fail(ErrorCode::kCorrupt, "its header is impossible");
  return version;
}

Result<PackHeader> decode_header(ByteView header, std::uint32_t version) {
  if (version > 1)
    return decode_fields(header);
  const std::string_view producer = as_text(header.subspan(kFieldsAt));
  return PackHeader{.producer = std::string(producer.substr(0, producer.find('\0')))};
}

void append_row(const PackRow& row, Bytes& to) {
  const auto& [key, offset, size, digest, kind] = row;
  append(to, key.bytes());
  append_le(to, offset);
  append_le(to, size);
  append(to, digest.bytes());
  append_le(to, number_of(kind));
  append_le(to, std::uint32_t{0});
}

PackRow decode_row(ByteView bytes) {
  PackRow row;
  auto& [key, offset, size, digest, kind] = row;
  key = Digest(bytes.first<Digest::kSize>());
  offset = load_le<std::uint64_t>(bytes, kOffsetAt);
  size = load_le<std::uint64_t>(bytes, kSizeAt);
  digest = Digest(bytes.subspan<kDigestAt, Digest::kSize>());
  std::ignore = kind;  // kind_of() says it
  return row;
}

std::optional<PackKind> kind_of(std::uint32_t number, const PackRow& row,
                                std::uint32_t version) {
  // Version 1 gave LTO-IR the number of a toolchain's record, whose key is the SHA-256
  // of its bytes. That of an object never is.
  constexpr std::uint32_t kLastOfVersion1 = number_of(PackKind::kToolchain);
  if (version == 1 && number == kLastOfVersion1)
    return row.key == row.digest ? PackKind::kToolchain : PackKind::kLtoIr;
  for (const PackKind kind :
       {PackKind::kCubin, PackKind::kPtx, PackKind::kPlan, PackKind::kToolchain,
        PackKind::kLtoIr, PackKind::kFiles}) {
    if (number == number_of(kind) && (version > 1 || number < kLastOfVersion1))
      return kind;
  }
  return std::nullopt;
}

Digest digest_of(ByteView header, ByteView index) {
  Sha256 hasher;
  hasher.update(header);
  hasher.update(index);
  return hasher.finish();
}

}  // namespace pack
}  // namespace kiln::cache
