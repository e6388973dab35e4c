#include "cache/pack.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <utility>

#include "cache/object_header.h"
#include "util/little_endian.h"
#include "util/posix_error.h"
#include "util/try.h"

namespace kiln::cache {
namespace {

constexpr std::string_view kMagic = "KILNPACK";
constexpr std::string_view kFooterMagic = "KILNPEND";
constexpr std::size_t kAlignment = 64;

// Header.
constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kHeaderBytesAt = 12;
constexpr std::size_t kProducerAt = 24;  // 16: reserved, zero
constexpr std::size_t kProducerBytes = kHeaderBytes - kProducerAt;

// A row of the index.
constexpr std::size_t kRowBytes = 88;
constexpr std::size_t kOffsetAt = 32;
constexpr std::size_t kSizeAt = 40;
constexpr std::size_t kDigestAt = 48;
constexpr std::size_t kKindAt = 80;
constexpr std::size_t kFlagsAt = 84;  // none yet: zero

// Footer.
constexpr std::size_t kFooterBytes = 64;
constexpr std::size_t kIndexOffsetAt = 0;
constexpr std::size_t kCountAt = 8;
constexpr std::size_t kIndexDigestAt = 16;
constexpr std::size_t kPackBytesAt = 48;
constexpr std::size_t kFooterMagicAt = 56;

constexpr std::size_t kMostToolchains = 64;
constexpr std::uint64_t kLargestToolchain = 65536;

static_assert(kKindAt + 8 == kRowBytes && kFooterMagicAt + 8 == kFooterBytes);

std::uint64_t aligned(std::uint64_t at) {
  return (at + kAlignment - 1) / kAlignment * kAlignment;
}

tl::unexpected<Error> corrupt(std::string message) {
  return fail(ErrorCode::kCorrupt, std::move(message));
}

PackRow decode_row(ByteView bytes) {
  PackRow row;
  auto& [key, offset, size, digest, kind] = row;
  key = Digest(bytes.first<Digest::kSize>());
  offset = load_le<std::uint64_t>(bytes, kOffsetAt);
  size = load_le<std::uint64_t>(bytes, kSizeAt);
  digest = Digest(bytes.subspan<kDigestAt, Digest::kSize>());
  kind = static_cast<PackKind>(load_le<std::uint32_t>(bytes, kKindAt));
  return row;
}

void encode_row(const PackRow& row, Bytes& to) {
  const auto& [key, offset, size, digest, kind] = row;
  append(to, key.bytes());
  append_le(to, offset);
  append_le(to, size);
  append(to, digest.bytes());
  append_le(to, static_cast<std::uint32_t>(kind));
  append_le(to, std::uint32_t{0});
}

/// Of the header and the index: all that a pack has besides its objects.
Digest digest_of(ByteView header, ByteView index) {
  Sha256 hasher;
  hasher.update(header);
  hasher.update(index);
  return hasher.finish();
}

Result<void> check_header(ByteView header) {
  if (as_text(header.first(kMagic.size())) != kMagic)
    return corrupt("it does not begin as a pack does");
  const auto version = load_le<std::uint32_t>(header, kVersionAt);
  if (version > kPackVersion)
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("it has format {}, and this Kiln reads {}", version, kPackVersion));
  if (version != kPackVersion ||
      load_le<std::uint32_t>(header, kHeaderBytesAt) != kHeaderBytes)
    return corrupt("its header is impossible");
  return {};
}

/// File systems that are never written, and so cut no file.
bool is_never_written(std::int64_t type) {
  constexpr std::array<std::int64_t, 5> kTypes{
      0x73717368,  // squashfs
      0xE0F5E1E2,  // erofs
      0x9660,      // iso9660
      0x28cd3d45,  // cramfs
      0x7275,      // romfs
  };
  return std::ranges::find(kTypes, type) != kTypes.end();
}

Rejection rejection(Check check, std::string detail) {
  return {check, std::move(detail)};
}

}  // namespace

class Pack::Map {
 public:
  Map(int fd, std::size_t size)
      : size_(size), at_(::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0)) {}
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;
  Map(Map&&) = delete;
  Map& operator=(Map&&) = delete;
  ~Map() {
    if (is_mapped())
      ::munmap(at_, size_);
  }

  [[nodiscard]] bool is_mapped() const { return at_ != MAP_FAILED; }
  [[nodiscard]] ByteView bytes() const {
    return {static_cast<const std::byte*>(at_), size_};
  }

 private:
  std::size_t size_;
  void* at_;
};

Result<UniqueFd> open_trusted_file(FileSystem& file_system, const TrustPolicy& trust,
                                   const std::filesystem::path& path) {
  KILN_TRY(trust.check_path(file_system, path));
  // O_NONBLOCK does not wait for a FIFO.
  const int fd =
      file_system.open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
  if (fd == -ENOENT || fd == -ENOTDIR)
    return fail(ErrorCode::kNotFound,
                fmt::format("{}: there is no such file", path.native()));
  if (fd < 0)
    return posix_error("open", path, -fd);
  UniqueFd file(fd);
  struct stat info {};
  if (const int err = file_system.fstat(fd, info); err != 0)
    return posix_error("stat", path, -err);
  if (!S_ISREG(info.st_mode) || !trust.accepts(info))
    return fail(ErrorCode::kUntrusted,
                fmt::format("{} is no file that only you, root or a trusted user can "
                            "write",
                            path.native()));
  return file;
}

Result<std::unique_ptr<const Pack>> Pack::open(const std::filesystem::path& path,
                                               const PackReading& reading) {
  auto pack = from(
      KILN_TRY(open_trusted_file(reading.file_system, reading.trust, path)), reading);
  if (!pack)
    pack.error().message = fmt::format("{}: {}", path.native(), pack.error().message);
  return pack;
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

Result<void> Pack::load(const PackReading& reading) {
  if (size_ < kHeaderBytes + kFooterBytes)
    return corrupt(fmt::format("{} bytes are no pack", size_));
  const Bytes header = KILN_TRY(bytes_at(0, kHeaderBytes));
  KILN_TRY(check_header(header));
  const auto tail_bytes =
      std::min<std::uint64_t>(size_, kFooterBytes + kLargestSignatureBlock);
  const Bytes tail = KILN_TRY(bytes_at(size_ - tail_bytes, tail_bytes));
  SignatureBlock block = signatures_at_end(tail);
  if (tail.size() < block.size + kFooterBytes)
    return corrupt("it is cut, or no pack");
  const std::uint64_t pack_bytes = size_ - block.size;
  const ByteView footer =
      ByteView(tail).first(tail.size() - block.size).last(kFooterBytes);
  const auto index_at = load_le<std::uint64_t>(footer, kIndexOffsetAt);
  const auto count = load_le<std::uint64_t>(footer, kCountAt);
  if (as_text(footer.subspan(kFooterMagicAt)) != kFooterMagic ||
      load_le<std::uint64_t>(footer, kPackBytesAt) != pack_bytes)
    return corrupt("it is cut: it does not end as a pack does");
  const std::uint64_t index_end = pack_bytes - kFooterBytes;
  if (count > kMostPackRows || index_at < kHeaderBytes || index_at > index_end ||
      index_end - index_at != count * kRowBytes)
    return corrupt("its index is not where its footer says");
  index_ = KILN_TRY(bytes_at(index_at, count * kRowBytes));
  if (digest_of(header, index_) !=
      Digest(footer.subspan<kIndexDigestAt, Digest::kSize>()))
    return corrupt("its index does not give the SHA-256 it states");
  KILN_TRY(check_rows(index_at));
  const std::string_view producer = as_text(ByteView(header).subspan(kProducerAt));
  producer_ = producer.substr(0, producer.find('\0'));
  signatures_ = std::move(block.signatures);
  if (reading.needs_signature || (!reading.keys.empty() && !signatures_.empty()))
    KILN_TRY(
        check_signed(KILN_TRY(Blake2bHasher::of(footer)), signatures_, reading.keys));
  const auto here = fmt::format("/proc/self/fd/{}", file_.get());
  if (is_never_written(file_system_.type(here.c_str()))) {
    auto map = std::make_shared<const Map>(file_.get(), size_);
    if (map->is_mapped())
      map_ = std::move(map);
  }
  return load_toolchains();
}

/// Every row is possible, they are sorted, and no two share bytes.
Result<void> Pack::check_rows(std::uint64_t end) const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  places.reserve(row_count());
  std::optional<Digest> before;
  for (std::size_t i = 0; i < row_count(); ++i) {
    const PackRow row = this->row(i);
    const bool is_toolchain = row.kind == PackKind::kToolchain;
    const std::uint64_t least =
        is_toolchain ? 1 : header::kBytes + header::kTrailer.size();
    const std::uint64_t most = is_toolchain ? kLargestToolchain : kMaxObjectBytes;
    if (row.kind < PackKind::kCubin || row.kind > PackKind::kToolchain ||
        load_le<std::uint32_t>(index_, i * kRowBytes + kFlagsAt) != 0 ||
        row.size < least || row.size > most || row.offset < kHeaderBytes ||
        row.offset % kAlignment != 0 || row.offset > end || row.size > end - row.offset)
      return corrupt(fmt::format("row {} of its index is impossible", i));
    if (before && *before >= row.key)
      return corrupt(fmt::format("row {} of its index is not in order", i));
    before = row.key;
    places.emplace_back(row.offset, row.size);
  }
  std::ranges::sort(places);
  for (std::size_t i = 1; i < places.size(); ++i) {
    if (places[i].first < places[i - 1].first + places[i - 1].second)
      return corrupt("two rows of its index overlap");
  }
  return {};
}

Result<void> Pack::load_toolchains() {
  for (std::size_t i = 0; i < row_count(); ++i) {
    const PackRow row = this->row(i);
    if (row.kind != PackKind::kToolchain)
      continue;
    const Bytes bytes = KILN_TRY(bytes_at(row.offset, row.size));
    if (Digest::of(bytes) != row.digest || toolchains_.size() == kMostToolchains)
      return corrupt("a toolchain's record does not give the SHA-256 it states");
    toolchains_.emplace_back(as_text(bytes));
  }
  return {};
}

Result<Bytes> Pack::bytes_at(std::uint64_t offset, std::size_t size) const {
  Bytes bytes(size);
  if (pread_all(file_system_, file_.get(), bytes.data(), size, offset) !=
      static_cast<ssize_t>(size))
    return fail(ErrorCode::kIo,
                fmt::format("{} bytes at {} cannot be read", size, offset));
  return bytes;
}

std::size_t Pack::row_count() const {
  return index_.size() / kRowBytes;
}

PackRow Pack::row(std::size_t number) const {
  return decode_row(ByteView(index_).subspan(number * kRowBytes, kRowBytes));
}

std::optional<PackRow> Pack::find(const Digest& key) const {
  std::size_t low = 0;
  std::size_t high = row_count();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (row(middle).key < key)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == row_count())
    return std::nullopt;
  const PackRow found = row(low);
  if (found.key != key || found.kind == PackKind::kToolchain)
    return std::nullopt;
  return found;
}

Result<Buffer> Pack::buffer_at(const PackRow& row) const {
  if (map_ != nullptr)
    return Buffer(map_, map_->bytes().subspan(row.offset, row.size));
  Buffer bytes(row.size);
  const ssize_t n =
      pread_all(file_system_, file_.get(), bytes.data(), row.size, row.offset);
  if (n < 0)
    return posix_error("read", "pack", static_cast<int>(-n));
  if (static_cast<std::uint64_t>(n) != row.size)
    return corrupt("the pack was cut since it was opened");
  return bytes;
}

tl::expected<StoredObject, Rejection> Pack::read(const PackRow& row) const {
  auto bytes = buffer_at(row);
  if (!bytes)
    return tl::unexpected(rejection(Check::kSize, bytes.error().message));
  if (Digest::of(bytes->view()) != row.digest)
    return tl::unexpected(rejection(
        Check::kChecksum, "its bytes do not give the SHA-256 in the pack's index"));
  auto object = StoredObject::parse(*std::move(bytes), row.key);
  if (!object)
    return object;
  if (static_cast<std::uint32_t>(object->kind()) !=
      static_cast<std::uint32_t>(row.kind))
    return tl::unexpected(
        rejection(Check::kHeader, "its kind is not that of the pack's index"));
  if (auto verified = object->verify_fully(); !verified)
    return tl::unexpected(std::move(verified).error());
  return object;
}

Result<void> PackWriter::write(ByteView bytes) {
  KILN_TRY(sink_(bytes));
  at_ += bytes.size();
  return {};
}

Result<void> PackWriter::pad() {
  const Bytes zeros(aligned(at_) - at_);
  return write(zeros);
}

Result<void> PackWriter::begin(std::string_view producer) {
  append(header_, as_bytes(kMagic));
  append_le(header_, kPackVersion);
  append_le(header_, static_cast<std::uint32_t>(kHeaderBytes));
  header_.resize(kProducerAt);
  append(header_, as_bytes(producer.substr(0, kProducerBytes)));
  header_.resize(kHeaderBytes);
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
  return add(object.key(), static_cast<PackKind>(object.kind()), object.file());
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
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is twice in the pack", twice->key.hex()));
  Bytes index;
  for (const PackRow& row : rows_) encode_row(row, index);
  Bytes footer;
  append_le(footer, at_);
  append_le(footer, std::uint64_t{rows_.size()});
  append(footer, digest_of(header_, index).bytes());
  append_le(footer, at_ + index.size() + kFooterBytes);
  append(footer, as_bytes(kFooterMagic));
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
