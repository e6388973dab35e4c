#include "cache/pack.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cache/object_header.h"
#include "cache/pack_format.h"
#include "util/little_endian.h"
#include "util/posix_error.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

tl::unexpected<Error> corrupt(std::string message) {
  return fail(ErrorCode::kCorrupt, std::move(message));
}

/// Rows lie between `begin` and `end`.
bool is_possible(const PackRow& row, std::uint64_t begin, std::uint64_t end) {
  const bool is_toolchain = row.kind == PackKind::kToolchain;
  const std::uint64_t least =
      is_toolchain ? 1 : header::kBytes + header::kTrailer.size();
  const std::uint64_t most = is_toolchain ? pack::kLargestToolchain : kMaxObjectBytes;
  return row.size >= least && row.size <= most && row.offset >= begin &&
         row.offset % pack::kAlignment == 0 && row.offset <= end &&
         row.size <= end - row.offset && (!is_toolchain || row.key == row.digest);
}

}  // namespace

Result<UniqueFd> open_trusted_file(FileSystem& file_system, const TrustPolicy& trust,
                                   const std::filesystem::path& path) {
  KILN_TRY(trust.check_path(file_system, path));
  // O_NONBLOCK does not wait for a FIFO.
  const int fd =
      file_system.open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
  if (fd == -ENOENT || fd == -ENOTDIR)
    return fail(ErrorCode::kNotFound, "{}: there is no such file", path.native());
  if (fd < 0)
    return posix_error("open", path, -fd);
  UniqueFd file(fd);
  struct stat info {};
  if (const int err = file_system.fstat(fd, info); err != 0)
    return posix_error("stat", path, -err);
  if (!S_ISREG(info.st_mode) || !trust.accepts(info))
    return fail(ErrorCode::kUntrusted,
                "{} is no file that only you, root or a trusted user can "
                "write",
                path.native());
  return file;
}

Result<std::unique_ptr<const Pack>> Pack::open(const std::filesystem::path& path,
                                               const PackReading& reading) {
  return about(
      path.native(),
      from(KILN_TRY(open_trusted_file(reading.file_system, reading.trust, path)),
           reading));
}

Result<std::unique_ptr<const Pack>> Pack::from(UniqueFd file,
                                               const PackReading& reading) {
  std::unique_ptr<Pack> pack(new Pack(std::move(file), reading.file_system));
  struct stat info {};
  if (const int err = reading.file_system.fstat(pack->file_.get(), info); err != 0)
    return posix_error("stat", "pack", -err);
  pack->size_ = static_cast<std::uint64_t>(info.st_size);
  KILN_TRY(pack->load(reading));
  return pack;
}

Result<Bytes> Pack::load_header() {
  Bytes header = KILN_TRY(bytes_at(0, pack::kLeastHeaderBytes));
  version_ = KILN_TRY(pack::version_of(header));
  const auto size = load_le<std::uint32_t>(header, pack::kHeaderBytesAt);
  if (size > size_ - pack::kFooterBytes)
    return corrupt("it is cut: its header does not end");
  if (size > header.size())
    header = KILN_TRY(bytes_at(0, size));
  return header;
}

Result<void> Pack::load(const PackReading& reading) {
  if (size_ < pack::kLeastHeaderBytes + pack::kFooterBytes)
    return corrupt(fmt::format("{} bytes are no pack", size_));
  const Bytes header = KILN_TRY(load_header());
  const auto tail_bytes =
      std::min<std::uint64_t>(size_, pack::kFooterBytes + kLargestSignatureBlock);
  const Bytes tail = KILN_TRY(bytes_at(size_ - tail_bytes, tail_bytes));
  SignatureBlock block = signatures_at_end(tail);
  if (tail.size() < block.size + pack::kFooterBytes)
    return corrupt("it is cut, or no pack");
  const std::uint64_t pack_bytes = size_ - block.size;
  const ByteView footer =
      ByteView(tail).first(tail.size() - block.size).last(pack::kFooterBytes);
  const auto index_at = load_le<std::uint64_t>(footer, pack::kIndexOffsetAt);
  const auto count = load_le<std::uint64_t>(footer, pack::kCountAt);
  if (as_text(footer.subspan(pack::kFooterMagicAt)) != pack::kFooterMagic ||
      load_le<std::uint64_t>(footer, pack::kPackBytesAt) != pack_bytes)
    return corrupt("it is cut: it does not end as a pack does");
  const std::uint64_t index_end = pack_bytes - pack::kFooterBytes;
  if (count > kMostPackRows || index_at < header.size() || index_at > index_end ||
      index_end - index_at != count * pack::kRowBytes)
    return corrupt("its index is not where its footer says");
  const Bytes index = KILN_TRY(bytes_at(index_at, count * pack::kRowBytes));
  if (pack::digest_of(header, index) !=
      Digest(footer.subspan<pack::kIndexDigestAt, Digest::kSize>()))
    return corrupt("its index does not give the SHA-256 it states");
  header_ = KILN_TRY(pack::decode_header(header, version_));
  signatures_ = std::move(block.signatures);
  footer_.assign(footer.begin(), footer.end());
  if (reading.needs_signature || (reading.keys != nullptr && !signatures_.empty())) {
    signers_ = KILN_TRY(check_signers(
        reading.keys != nullptr ? *reading.keys : TrustedKeys(), reading.beside));
  }
  take_rows(index, header.size(), index_at);
  load_toolchains();
  return {};
}

Result<std::vector<KeyId>> Pack::check_signers(
    const TrustedKeys& keys, std::span<const PublicKey> beside) const {
  return check_signed(KILN_TRY(Blake2bHasher::of(footer_)), signatures_, keys,
                      {SignedThing::Kind::kPack, header_.name}, beside);
}

void Pack::drop_rows(const std::function<std::string_view(const PackRow&)>& why_bad) {
  std::vector<PackRow> sound;
  sound.reserve(rows_.size());
  for (const PackRow& row : rows_) {
    const std::string_view why = why_bad(row);
    if (why.empty())
      sound.push_back(row);
    else
      bad_rows_.push_back({row.key, why});
  }
  rows_ = std::move(sound);
}

/// Those that are possible, by key; no two have a key or bytes in common.
void Pack::take_rows(ByteView index, std::uint64_t begin, std::uint64_t end) {
  rows_.reserve(index.size() / pack::kRowBytes);
  for (; !index.empty(); index = index.subspan(pack::kRowBytes)) {
    PackRow row = pack::decode_row(index.first(pack::kRowBytes));
    const auto kind =
        pack::kind_of(load_le<std::uint32_t>(index, pack::kKindAt), row, version_);
    const bool is_known = kind && load_le<std::uint32_t>(index, pack::kFlagsAt) == 0;
    row.kind = kind.value_or(row.kind);
    if (is_known && is_possible(row, begin, end))
      rows_.push_back(row);
    else if (!is_known && version_ > 1)
      ++unknown_rows_;
    else
      bad_rows_.push_back({row.key, "its row in the index is impossible"});
  }
  std::ranges::sort(rows_, {}, &PackRow::offset);
  std::uint64_t taken = 0;
  drop_rows([&](const PackRow& row) -> std::string_view {
    if (row.offset < taken)
      return "another row of the index has its bytes";
    taken = row.offset + row.size;
    return {};
  });
  std::ranges::sort(rows_, {}, &PackRow::key);
  std::optional<Digest> before;
  drop_rows([&](const PackRow& row) -> std::string_view {
    if (before == row.key)
      return "another row of the index has its key";
    before = row.key;
    return {};
  });
}

void Pack::load_toolchains() {
  drop_rows([this](const PackRow& row) -> std::string_view {
    if (row.kind != PackKind::kToolchain)
      return {};
    if (toolchains_.size() == pack::kMostToolchains)
      return "it is over the limit of toolchains in a pack";
    const auto bytes = bytes_at(row.offset, row.size);
    if (!bytes)
      return "the record of a toolchain cannot be read";
    if (Digest::of(*bytes) != row.digest)
      return "the record of a toolchain does not give the SHA-256 that it states";
    toolchains_.emplace_back(as_text(*bytes));
    return {};
  });
}

Result<Bytes> Pack::bytes_at(std::uint64_t offset, std::size_t size) const {
  Bytes bytes(size);
  if (pread_all(file_system_, file_.get(), bytes.data(), size, offset) !=
      static_cast<ssize_t>(size))
    return fail(ErrorCode::kIo, "{} bytes at {} cannot be read", size, offset);
  return bytes;
}

std::optional<PackRow> Pack::find(const Digest& key) const {
  const auto found = std::ranges::lower_bound(rows_, key, {}, &PackRow::key);
  if (found == rows_.end() || found->key != key || found->kind == PackKind::kToolchain)
    return std::nullopt;
  return *found;
}

// Into memory: in a mapped file an I/O error would be a signal, and so would be a cut.
Result<Buffer> Pack::buffer_at(const PackRow& row) const {
  Buffer bytes(row.size);
  const ssize_t n =
      pread_all(file_system_, file_.get(), bytes.data(), row.size, row.offset);
  if (n < 0)
    return posix_error("read", "pack", static_cast<int>(-n));
  if (static_cast<std::uint64_t>(n) != row.size)
    return corrupt("the pack was cut since it was opened");
  return bytes;
}

tl::expected<StoredObject, Rejection> Pack::read(const PackRow& row,
                                                 Depth depth) const {
  auto bytes = buffer_at(row);
  if (!bytes)
    return reject(Check::kSize, bytes.error().message);
  if (Digest::of(bytes->view()) != row.digest)
    return reject(Check::kChecksum,
                  "its bytes do not give the SHA-256 in the pack's index");
  auto object = StoredObject::parse(*std::move(bytes), row.key);
  if (!object)
    return object;
  if (pack_kind(object->kind()) != row.kind)
    return reject(Check::kHeader, "its kind differs from the pack's index");
  if (depth == Depth::kHit)
    return object;
  return object->verify_fully().map([&] { return *std::move(object); });
}

}  // namespace kiln::cache
