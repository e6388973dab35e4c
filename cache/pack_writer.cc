// The writer of packs.

#include <algorithm>

#include "cache/pack.h"
#include "cache/pack_format.h"
#include "util/little_endian.h"
#include "util/try.h"

namespace kiln::cache {

Result<void> PackWriter::write(ByteView bytes) {
  KILN_TRY(sink_(bytes));
  at_ += bytes.size();
  return {};
}

Result<void> PackWriter::pad() {
  const Bytes zeros(pack::aligned(at_) - at_);
  return write(zeros);
}

Result<void> PackWriter::begin(const PackHeader& header) {
  header_ = KILN_TRY(pack::encode_header(header));
  return write(header_);
}

bool PackWriter::has(const Digest& key) const {
  return std::ranges::find(rows_, key, &PackRow::key) != rows_.end();
}

Result<void> PackWriter::add(const Digest& key, PackKind kind, ByteView bytes) {
  KILN_TRY(pad());
  rows_.push_back({key, at_, bytes.size(), Digest::of(bytes), kind});
  return write(bytes);
}

Result<void> PackWriter::add(const StoredObject& object) {
  return add(object.key(), pack_kind(object.kind()), object.file());
}

Result<void> PackWriter::add_toolchain(std::string_view record) {
  const Digest key = Digest::of(as_bytes(record));
  return has(key) ? Result<void>() : add(key, PackKind::kToolchain, as_bytes(record));
}

Result<void> PackWriter::finish(std::span<const Signer> signers) {
  KILN_TRY(pad());
  std::ranges::sort(rows_, {}, &PackRow::key);
  const auto twice = std::ranges::adjacent_find(rows_, {}, &PackRow::key);
  if (twice != rows_.end())
    return refuse("{} is twice in the pack", twice->key.hex());
  Bytes index;
  for (const PackRow& row : rows_) pack::append_row(row, index);
  Bytes footer;
  append_le(footer, at_);
  append_le(footer, std::uint64_t{rows_.size()});
  append(footer, pack::digest_of(header_, index).bytes());
  append_le(footer, at_ + index.size() + pack::kFooterBytes);
  append(footer, as_bytes(pack::kFooterMagic));
  KILN_TRY(write(index));
  KILN_TRY(write(footer));
  if (signers.empty())
    return {};
  const Blake2b512 digest = KILN_TRY(Blake2bHasher::of(footer));
  std::vector<Signature> signatures;
  for (const Signer& signer : signers)
    signatures.push_back({signer.key, KILN_TRY(signer.sign(digest))});
  return write(encode_signatures(signatures));
}

}  // namespace kiln::cache
