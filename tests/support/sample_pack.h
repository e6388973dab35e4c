// Packs to read in tests, and what an attacker makes of them who knows the format.

#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "cache/pack.h"
#include "tests/support/damaged_object.h"
#include "tests/support/sample_object.h"
#include "util/little_endian.h"

namespace kiln::test {

inline constexpr std::size_t kPackFooterBytes = 64;
inline constexpr std::size_t kPackRowBytes = 88;
inline constexpr std::string_view kSampleRecord =
    R"({"architectures":["9.0"],"builtins":"5e6f","format":1,"nvrtc":"1a2b3c4d","version":"13.0"})";

inline cache::PackHeader sample_header() {
  return {.producer = "kiln 0.2.0",
          .name = "job.kpack",
          .created_ns = 1'700'000'000'000'000'000,
          .serial = 17,
          .toolchains = {"nvrtc-13.0-1a2b3c4d 1a2b3c4d+5e6f"}};
}

/// The bytes of a pack of these objects, in this order, and of a toolchain's record.
inline Bytes pack_of(std::span<const cache::StoredObject> objects,
                     std::span<const Signer> signers = {},
                     std::string_view record = kSampleRecord) {
  Bytes bytes;
  cache::PackWriter writer([&bytes](ByteView part) -> Result<void> {
    append(bytes, part);
    return {};
  });
  bool done = writer.begin(sample_header()).has_value();
  for (const cache::StoredObject& object : objects)
    done = done && writer.add(object).has_value();
  if (!record.empty())
    done = done && writer.add_toolchain(record).has_value();
  done = done && writer.finish(signers).has_value();
  return done ? bytes : Bytes();
}

inline std::vector<cache::StoredObject> sample_objects(int count) {
  std::vector<cache::StoredObject> objects;
  for (int i = 0; i < count; ++i) {
    SampleObject sample(i, "\177ELF cubin " + std::to_string(i));
    objects.push_back(cache::StoredObject::make(*sample).value());
  }
  return objects;
}

/// One of each kind, as version 1 of this file has them, too.
inline std::vector<cache::StoredObject> objects_of_every_kind() {
  std::vector<cache::StoredObject> objects;
  for (int i = 1; to_string(static_cast<cache::Kind>(i)) != "unknown"; ++i) {
    SampleObject sample(i, "\177ELF object " + std::to_string(i));
    sample->kind = static_cast<cache::Kind>(i);
    objects.push_back(cache::StoredObject::make(*sample).value());
  }
  return objects;
}

inline void write_bytes(const std::filesystem::path& path, ByteView bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << as_text(bytes);
  std::filesystem::permissions(path, std::filesystem::perms(0644));
}

/// Where things are in an unsigned pack.
inline std::size_t footer_of(const Bytes& pack) {
  return pack.size() - kPackFooterBytes;
}
inline std::size_t index_of(const Bytes& pack) {
  return load_le<std::uint64_t>(pack, footer_of(pack));
}
inline std::size_t row_of(const Bytes& pack, std::size_t row) {
  return index_of(pack) + row * kPackRowBytes;
}

inline std::size_t header_bytes_of(ByteView pack) {
  return load_le<std::uint32_t>(pack, 12);
}

/// Makes every SHA-256 of an unsigned pack fit its bytes again; rows must be possible.
inline void repair_pack(Bytes& pack) {
  const auto count = load_le<std::uint64_t>(pack, footer_of(pack) + 8);
  for (std::size_t i = 0; i < count; ++i) {
    const auto offset = load_le<std::uint64_t>(pack, row_of(pack, i) + 32);
    const auto size = load_le<std::uint64_t>(pack, row_of(pack, i) + 40);
    if (offset <= pack.size() && size <= pack.size() - offset)
      store_bytes(pack, row_of(pack, i) + 48,
                  Digest::of(ByteView(pack).subspan(offset, size)).bytes());
  }
  Sha256 hasher;
  hasher.update(ByteView(pack).first(std::min(header_bytes_of(pack), pack.size())));
  hasher.update(ByteView(pack).subspan(index_of(pack), count * kPackRowBytes));
  store_bytes(pack, footer_of(pack) + 16, hasher.finish().bytes());
}

}  // namespace kiln::test
