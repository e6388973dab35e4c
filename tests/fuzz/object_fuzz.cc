// Any bytes as an object file, as metadata and as a list of fields. No mutation finds a
// hash, so the file is read a second time with all of them made to fit.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>

#include "build/artifact.h"
#include "cache/layout.h"
#include "cache/metadata.h"
#include "cache/object.h"
#include "codec/fields.h"
#include "tests/fuzz/require.h"
#include "tests/support/damaged_object.h"

namespace {

namespace header = kiln::cache::header;
using kiln::Bytes;
using kiln::ByteView;
using kiln::Digest;
using kiln::cache::StoredObject;
using kiln::fuzz::require;

/// Everything that anybody asks of an object.
void read(ByteView file, const Digest& key) {
  kiln::cache::Buffer buffer(file.size());
  std::copy(file.begin(), file.end(), buffer.data());
  const auto object = StoredObject::parse(std::move(buffer), key);
  if (!object)
    return;
  require(object->key() == key && !object->payload().empty());
  std::ignore = kiln::check_stored_payload(*object);
  const bool sound = object->verify_fully().has_value();
  const auto names = object->lowered_names();
  const auto metadata = object->metadata();
  const bool texts = object->log() && object->source() && object->ptx();
  require(!sound || (names && metadata && object->preimage() && texts));
  require(!metadata || (names && names->size() == metadata->entry_points.size()));
  require(!metadata || object->same_build(*object));
}

/// `file` with its fixed bytes, its size and every hash as they should be.
std::optional<Digest> repair(Bytes& file) {
  if (file.size() < header::kBytes + header::kTrailer.size())
    return std::nullopt;
  kiln::test::store_bytes(file, 0, kiln::as_bytes(header::kMagic));
  kiln::test::store_le(file, header::kVersion, kiln::cache::kFormatVersion);
  kiln::test::store_le(file, header::kHeaderBytes,
                       static_cast<std::uint32_t>(header::kBytes));
  kiln::test::store_le(file, header::kFileBytes, std::uint64_t{file.size()});
  kiln::test::store_bytes(file, file.size() - header::kTrailer.size(),
                          kiln::as_bytes(header::kTrailer));
  Digest key;
  if (const auto parsed = header::decode(file, file.size())) {
    const auto digest_of = [&](const header::Section& section) {
      return Digest::of(ByteView(file).subspan(section.offset, section.stored_bytes));
    };
    key = digest_of(parsed->sections[2]);
    kiln::test::store_bytes(file, header::kKey, key.bytes());
    kiln::test::store_bytes(file, header::kPayloadDigest,
                            digest_of(parsed->sections[0]).bytes());
  }
  kiln::test::repair_checksum(file);
  return key;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  read(bytes, Digest());
  Bytes file(bytes.begin(), bytes.end());
  if (const auto key = repair(file))
    read(file, *key);
  return 0;
}
