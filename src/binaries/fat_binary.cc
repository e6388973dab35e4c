#include "binaries/fat_binary.h"

#include <fmt/format.h>

#include <algorithm>

#include "util/little_endian.h"
#include "util/try.h"

namespace kiln::binaries {
namespace {

using device::ArchSuffix;
using device::ImageKind;

constexpr std::uint32_t kFatBinaryMagic = 0xBA55ED50;
constexpr std::uint64_t kFatBinaryHeader = 16;
constexpr std::uint64_t kEntryHeader = 64;
constexpr std::uint64_t kUnit = 8;  // fat binaries begin at multiples of it
constexpr std::uint64_t kMostEntries = 1'000'000;

constexpr std::uint64_t kFlagLz4 = 0x2000;
constexpr std::uint64_t kFlagZstd = 0x8000;
constexpr std::uint64_t kFlagSuffixA = 0x10'0000;
constexpr std::uint64_t kFlagSuffixF = 0x20'0000;

tl::unexpected<Error> corrupt(const FileRange& file, std::string_view what) {
  return fail(ErrorCode::kCorrupt, "{}: bad fat binary: {}", file.name(), what);
}

std::optional<ImageKind> kind_of(std::uint16_t number) {
  switch (number) {
    case 1:
      return ImageKind::kPtx;
    case 2:
      return ImageKind::kCubin;
    case 8:
      return ImageKind::kLtoIr;
    default:
      return std::nullopt;
  }
}

ArchSuffix suffix_of(std::uint64_t flags) {
  if ((flags & kFlagSuffixA) != 0)
    return ArchSuffix::kA;
  return (flags & kFlagSuffixF) != 0 ? ArchSuffix::kF : ArchSuffix::kNone;
}

Compression compression_of(std::uint64_t flags) {
  if ((flags & kFlagZstd) != 0)
    return Compression::kZstd;
  return (flags & kFlagLz4) != 0 ? Compression::kLz4 : Compression::kNone;
}

struct EntryHeader {
  std::uint16_t kind;
  std::uint64_t header_bytes;
  std::uint64_t padded_bytes;
  std::uint64_t compressed_bytes;
  std::uint16_t isa_minor;
  std::uint16_t isa_major;
  std::uint32_t architecture;
  std::uint64_t flags;
  std::uint64_t decompressed_bytes;
};

EntryHeader read_header(ByteView bytes) {
  return {.kind = load_le<std::uint16_t>(bytes, 0),
          .header_bytes = load_le<std::uint32_t>(bytes, 4),
          .padded_bytes = load_le<std::uint64_t>(bytes, 8),
          .compressed_bytes = load_le<std::uint32_t>(bytes, 16),
          .isa_minor = load_le<std::uint16_t>(bytes, 24),
          .isa_major = load_le<std::uint16_t>(bytes, 26),
          .architecture = load_le<std::uint32_t>(bytes, 28),
          .flags = load_le<std::uint64_t>(bytes, 40),
          .decompressed_bytes = load_le<std::uint64_t>(bytes, 56)};
}

// nullopt: of a kind that is not listed.
Result<std::optional<FatBinaryEntry>> entry_of(const EntryHeader& header,
                                               const FileRange& padded) {
  constexpr std::uint32_t kMostArchitecture = 9999;
  const auto kind = kind_of(header.kind);
  if (!kind)
    return std::nullopt;
  if (header.architecture > kMostArchitecture)
    return corrupt(padded, fmt::format("architecture {}", header.architecture));
  const Compression compression = compression_of(header.flags);
  const bool is_compressed = compression != Compression::kNone;
  const int number = static_cast<int>(header.architecture);
  FileRange image =
      is_compressed ? KILN_TRY(padded.part(0, header.compressed_bytes)) : padded;
  FatBinaryEntry entry{
      .target = {{{number / 10, number % 10}, suffix_of(header.flags)}, *kind},
      .compression = compression,
      .isa = {},
      .image = std::move(image),
      .bytes = is_compressed ? header.decompressed_bytes : padded.size()};
  if (*kind == ImageKind::kPtx)
    entry.isa = device::CudaVersion{header.isa_major, header.isa_minor};
  return entry;
}

Result<FatBinary> read_entries(const FileRange& entries, std::uint64_t& count) {
  FatBinary found;
  std::uint64_t at = 0;
  while (at < entries.size()) {
    if (++count > kMostEntries)
      return fail(ErrorCode::kResourceLimit, "{} has more than {} images",
                  entries.name(), kMostEntries);
    const EntryHeader header = read_header(KILN_TRY(entries.read(at, kEntryHeader)));
    if (header.header_bytes < kEntryHeader)
      return corrupt(entries,
                     fmt::format("an entry's header of {} bytes", header.header_bytes));
    at += header.header_bytes;
    const FileRange image = KILN_TRY(entries.part(at, header.padded_bytes));
    if (auto entry = KILN_TRY(entry_of(header, image)))
      found.push_back(*std::move(entry));
    at += header.padded_bytes;
  }
  return found;
}

// Where the next bytes are that are not zero, from `at` on; at most the end.
Result<std::uint64_t> skip_zeros(const FileRange& section, std::uint64_t at) {
  constexpr std::uint64_t kChunk = 64ULL << 10U;
  for (std::uint64_t chunk = kUnit; at < section.size(); chunk = kChunk) {
    const Bytes bytes = KILN_TRY(section.read_up_to(at, chunk));
    const auto found = std::ranges::find_if(
        bytes, [](std::byte each) { return each != std::byte{0}; });
    const auto zeros = static_cast<std::uint64_t>(found - bytes.begin());
    if (found != bytes.end())
      return at + zeros / kUnit * kUnit;
    at += zeros;
  }
  return section.size();
}

}  // namespace

bool is_fat_binary(ByteView begin) {
  return begin.size() >= kFatBinaryHeader &&
         load_le<std::uint32_t>(begin, 0) == kFatBinaryMagic;
}

Result<void> read_fat_binaries(
    const FileRange& section,
    const std::function<Result<void>(const FatBinary&)>& take) {
  std::uint64_t count = 0;
  std::uint64_t at = 0;
  while ((at = KILN_TRY(skip_zeros(section, at))) < section.size()) {
    const Bytes header = KILN_TRY(section.read(at, kFatBinaryHeader));
    if (!is_fat_binary(header))
      return corrupt(section, fmt::format("no magic at {:#x} of its section", at));
    const std::uint64_t header_bytes = load_le<std::uint16_t>(header, 6);
    if (header_bytes < kFatBinaryHeader)
      return corrupt(section, fmt::format("a header of {} bytes", header_bytes));
    const std::uint64_t entry_bytes = load_le<std::uint64_t>(header, 8);
    at += header_bytes;
    const FileRange entries = KILN_TRY(section.part(at, entry_bytes));
    KILN_TRY(take(KILN_TRY(read_entries(entries, count))));
    at += entry_bytes;
  }
  return {};
}

}  // namespace kiln::binaries
