// What somebody can do to an object file who knows the format: change a field, and make
// the checksum fit again, so that the check behind it is reached.

#pragma once

#include <xxhash.h>

#include <algorithm>
#include <cstdint>

#include "cache/object_header.h"
#include "util/bytes.h"
#include "util/little_endian.h"

namespace kiln::test {

/// `offset` and `size` lie inside `file`, as they do for all below.
inline void store_bytes(Bytes& file, std::size_t offset, ByteView bytes) {
  std::copy(bytes.begin(), bytes.end(),
            file.begin() + static_cast<std::ptrdiff_t>(offset));
}

template <std::unsigned_integral T>
void store_le(Bytes& file, std::size_t offset, T value) {
  Bytes bytes;
  append_le(bytes, value);
  store_bytes(file, offset, bytes);
}

/// The XXH3-128 that the bytes now give. `file` is at least a header long.
inline void repair_checksum(Bytes& file) {
  const XXH128_hash_t hash = XXH3_128bits(file.data() + cache::header::kCheckedFrom,
                                          file.size() - cache::header::kCheckedFrom);
  store_le(file, cache::header::kChecksum, static_cast<std::uint64_t>(hash.low64));
  store_le(file, cache::header::kChecksum + 8, static_cast<std::uint64_t>(hash.high64));
}

/// Where the row of a section stands in the header; sections are numbered from 0:
/// payload, metadata, preimage, log, source, PTX.
inline constexpr std::size_t section_row(std::size_t section) {
  return cache::header::kSections + section * cache::header::kSectionBytes;
}

}  // namespace kiln::test
