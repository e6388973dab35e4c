// The fixed part of an object file; FORMAT.md, "Object", is the contract. Shared by the
// reader of whole objects and by listings, which read no payload.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "cache/object.h"
#include "codec/digest.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln::cache::header {

inline constexpr std::string_view kMagic = "KILNOBJ\n";
inline constexpr std::string_view kTrailer = "KILNEND\n";

// Byte offsets. The checksum covers everything after it; the fields before it are
// compared with their expected values.
inline constexpr std::size_t kVersion = 8;
inline constexpr std::size_t kHeaderBytes = 12;
inline constexpr std::size_t kChecksum = 16;
inline constexpr std::size_t kCheckedFrom = 32;
inline constexpr std::size_t kFileBytes = 32;
inline constexpr std::size_t kKind = 40;
inline constexpr std::size_t kTarget = 48;
inline constexpr std::size_t kKey = 64;
inline constexpr std::size_t kPayloadDigest = 96;
inline constexpr std::size_t kSections = 128;
inline constexpr std::size_t kSectionBytes = 24;
inline constexpr std::size_t kBytes = kSections + kSectionCount * kSectionBytes;
static_assert(kBytes % 16 == 0,
              "the payload is an ELF file, which likes to be aligned");

struct NewSection {
  ByteView stored;
  std::size_t raw_bytes;
  Codec codec;
};

struct Parsed {
  Kind kind = Kind::kCubin;
  std::string_view target;  // a view of the input
  Digest key;
  Digest payload_digest;
  std::array<Section, kSectionCount> sections;
};

/// The kBytes bytes of a header; the checksum is left zero.
[[nodiscard]] Bytes encode(Kind kind, std::string_view target, const Digest& key,
                           const Digest& payload,
                           std::span<const NewSection, kSectionCount> sections);

/// Decodes at least kBytes bytes from the start of a file of `file_bytes` bytes. Checks
/// that every field is possible, but neither magic nor checksum. Errors: kCorrupt.
[[nodiscard]] Result<Parsed> decode(ByteView bytes, std::uint64_t file_bytes);

}  // namespace kiln::cache::header
