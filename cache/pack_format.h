// The parts of a pack as bytes; FORMAT.md, "Pack", is the contract. Shared by reader
// and writer.

#pragma once

#include <cstdint>
#include <string_view>

#include "cache/pack.h"
#include "codec/digest.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln::cache::pack {

inline constexpr std::string_view kMagic = "KILNPACK";
inline constexpr std::string_view kFooterMagic = "KILNPEND";
inline constexpr std::size_t kAlignment = 64;

// Header.
inline constexpr std::size_t kLeastHeaderBytes = 64;  // of version 1 all of it
inline constexpr std::size_t kMostHeaderBytes = 65536;
inline constexpr std::size_t kVersionAt = 8;
inline constexpr std::size_t kHeaderBytesAt = 12;
inline constexpr std::size_t kFieldBytesAt = 16;  // of version 1: zero
inline constexpr std::size_t kFieldsAt = 24;      // of version 1: the producer

// A row of the index.
inline constexpr std::size_t kRowBytes = 88;
inline constexpr std::size_t kOffsetAt = 32;
inline constexpr std::size_t kSizeAt = 40;
inline constexpr std::size_t kDigestAt = 48;
inline constexpr std::size_t kKindAt = 80;
inline constexpr std::size_t kFlagsAt = 84;  // none yet: zero
static_assert(kKindAt + 8 == kRowBytes);

// Footer.
inline constexpr std::size_t kFooterBytes = 64;
inline constexpr std::size_t kIndexOffsetAt = 0;
inline constexpr std::size_t kCountAt = 8;
inline constexpr std::size_t kIndexDigestAt = 16;
inline constexpr std::size_t kPackBytesAt = 48;
inline constexpr std::size_t kFooterMagicAt = 56;
static_assert(kFooterMagicAt + 8 == kFooterBytes);

inline constexpr std::size_t kMostToolchains = 64;
inline constexpr std::uint64_t kLargestToolchain = 65536;

[[nodiscard]] std::uint64_t aligned(std::uint64_t at);

/// The whole header, in version 2. Errors: kInvalidArgument, if it is too long.
[[nodiscard]] Result<Bytes> encode_header(const PackHeader& header);
/// The version that its first kLeastHeaderBytes state. Errors: kCorrupt; kUnavailable.
[[nodiscard]] Result<std::uint32_t> version_of(ByteView header);
/// Of a whole header of that version. Errors: kCorrupt.
[[nodiscard]] Result<PackHeader> decode_header(ByteView header, std::uint32_t version);

void append_row(const PackRow& row, Bytes& to);
/// The kind stays as it is: see kind_of().
[[nodiscard]] PackRow decode_row(ByteView bytes);
/// What a row's number of a kind means; nullopt if nothing.
[[nodiscard]] std::optional<PackKind> kind_of(std::uint32_t number, const PackRow& row,
                                              std::uint32_t version);

/// Of the header and the index: all that a pack has besides its objects.
[[nodiscard]] Digest digest_of(ByteView header, ByteView index);

}  // namespace kiln::cache::pack
