// A pack: many objects in one file that is never changed, each found by its key.
// FORMAT.md, "Pack", is the contract. Knows nothing of roots; seeds.h looks up in
// packs.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/file_system.h"
#include "cache/object.h"
#include "cache/trust.h"
#include "codec/digest.h"
#include "codec/signature.h"
#include "codec/trusted_keys.h"
#include "kiln/result.h"
#include "util/bytes.h"
#include "util/kept_fd.h"
#include "util/unique_fd.h"

namespace kiln::cache {

inline constexpr std::uint32_t kPackVersion = 2;  // written; 1 is read, too
inline constexpr std::uint64_t kMostPackRows = 1'000'000;
inline constexpr std::uint64_t kMostSerial = std::numeric_limits<std::int64_t>::max();

/// What a row of the index is about, as its number in the file: not that of a Kind.
enum class PackKind : std::uint32_t {
  kCubin = 1,
  kPtx = 2,
  kPlan = 3,
  kToolchain = 4,  // the record of the NVRTC that built: toolchains/recorded.json
  kLtoIr = 5,
  kFiles = 6,
};

/// Of a kind of objects.
[[nodiscard]] PackKind pack_kind(Kind kind);

/// What a pack says about itself. A signature covers all of it.
struct PackHeader {
  std::string producer{};  // "kiln 0.2.0"
  // From here on of version 2; a pack of version 1 has none of it.
  std::string name{};                     // of its file: "job.kpack"
  std::int64_t created_ns = 0;            // since 1970
  std::uint64_t serial = 0;               // larger than in the pack of this name before
  std::vector<std::string> toolchains{};  // name and build ids of each that is recorded
  friend bool operator==(const PackHeader&, const PackHeader&) = default;
};

/// A row of a pack's index.
struct PackRow {
  Digest key;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  Digest digest;  // SHA-256 of these bytes
  PackKind kind = PackKind::kCubin;
};

/// Which checks of an object of a pack are made.
enum class Depth : std::uint8_t {
  kHit,    // SHA-256 of the row, and every check of a hit
  kFully,  // and verify_fully()
};

/// A row that is not used, while the others are.
struct BadRow {
  Digest key;
  std::string_view why;
};

/// What a pack is opened with.
struct PackReading {
  FileSystem& file_system;
  const TrustPolicy& trust;
  /// Whose signatures a pack needs to have, if it has any. Null: they are not looked
  /// at.
  const TrustedKeys* keys = nullptr;
  /// True: a pack without enough signatures by `keys` is refused.
  bool needs_signature = false;
  /// Those that have signed it elsewhere, by check_minisig().
  std::span<const PublicKey> beside = {};
};

/// A regular file that only trusted users can write, open for reading. Follows links.
/// Errors: kNotFound, kUntrusted, kIo.
[[nodiscard]] Result<UniqueFd> open_trusted_file(FileSystem& file_system,
                                                 const TrustPolicy& trust,
                                                 const std::filesystem::path& path);

/// An open pack. Its index was checked; each object is when it is read.
/// Thread safety: immutable; every method may run concurrently, in a forked child, too.
/// A file that is replaced stays readable as it was. One that is cut or written over
/// fails the checks of what is read from it.
class Pack {
 public:
  /// Reads header, index and footer, and checks all of them, trust and signature. A row
  /// that is impossible costs that row. Cost: SHA-256 of the index, 88 bytes an object.
  /// Errors: kNotFound; kUntrusted (as a root, by its owner, or by a signature);
  /// kCorrupt (truncated, changed, no pack); kUnavailable (of a newer format); kIo.
  [[nodiscard]] static Result<std::unique_ptr<const Pack>> open(
      const std::filesystem::path& path, const PackReading& reading);

  /// The same of a file that is open; whose it is, the caller has checked. Messages do
  /// not name it.
  [[nodiscard]] static Result<std::unique_ptr<const Pack>> from(
      UniqueFd file, const PackReading& reading);

  [[nodiscard]] std::optional<PackRow> find(const Digest& key) const;
  /// Those that can be used, by key.
  [[nodiscard]] const std::vector<PackRow>& rows() const { return rows_; }
  /// Of `rows`, those of objects.
  [[nodiscard]] std::size_t object_count() const {
    return rows_.size() - toolchains_.size();
  }
  [[nodiscard]] const std::vector<BadRow>& bad_rows() const { return bad_rows_; }
  /// Rows of kinds that a later version of Kiln has added.
  [[nodiscard]] std::uint64_t unknown_rows() const { return unknown_rows_; }

  /// The object of a row, by default checked as an object from elsewhere.
  [[nodiscard]] tl::expected<StoredObject, Rejection> read(
      const PackRow& row, Depth depth = Depth::kFully) const;

  /// The recorded toolchains, as their JSON files had them.
  [[nodiscard]] const std::vector<std::string>& toolchains() const {
    return toolchains_;
  }
  [[nodiscard]] std::uint64_t size_bytes() const { return size_; }
  [[nodiscard]] const PackHeader& header() const { return header_; }
  /// Not checked.
  [[nodiscard]] const std::vector<Signature>& signatures() const { return signatures_; }
  /// The keys of PackReading that were found to have signed it.
  [[nodiscard]] const std::vector<KeyId>& signers() const { return signers_; }
  /// The keys that have, `beside` included, and are enough. Errors: kUntrusted.
  [[nodiscard]] Result<std::vector<KeyId>> check_signers(
      const TrustedKeys& keys, std::span<const PublicKey> beside = {}) const;

 private:
  Pack(UniqueFd file, FileSystem& file_system)
      : file_(std::move(file)), file_system_(file_system) {}

  [[nodiscard]] Result<void> load(const PackReading& reading);
  [[nodiscard]] Result<Bytes> load_header();
  void take_rows(ByteView index, std::uint64_t begin, std::uint64_t end);
  void load_toolchains();
  void drop_rows(const std::function<std::string_view(const PackRow&)>& why_bad);
  [[nodiscard]] Result<Bytes> bytes_at(std::uint64_t offset, std::size_t size) const;
  [[nodiscard]] Result<Buffer> buffer_at(const PackRow& row) const;

  const KeptFd file_;
  FileSystem& file_system_;
  std::uint64_t size_ = 0;
  std::uint32_t version_ = 0;
  PackHeader header_;
  std::vector<PackRow> rows_;
  std::vector<BadRow> bad_rows_;
  std::uint64_t unknown_rows_ = 0;
  std::vector<std::string> toolchains_;
  std::vector<Signature> signatures_;
  Bytes footer_;
  std::vector<KeyId> signers_;
};

/// Takes the bytes of a pack in their order.
using PackSink = std::function<Result<void>(ByteView)>;

/// Writes a pack: begin(), then the objects, then finish(). The same header and objects
/// in the same order give the same bytes. Thread safety: none.
class PackWriter {
 public:
  explicit PackWriter(PackSink sink) : sink_(std::move(sink)) {}

  /// Errors: kInvalidArgument (over 64 KiB); those of the sink.
  [[nodiscard]] Result<void> begin(const PackHeader& header);
  /// Two of one key are an error, kInvalidArgument. Errors: those of the sink.
  [[nodiscard]] Result<void> add(const StoredObject& object);
  /// A record that is there already is left out.
  [[nodiscard]] Result<void> add_toolchain(std::string_view record);
  /// Index, footer and, with signers, their signatures. Errors: those of the sink and
  /// of the signers.
  [[nodiscard]] Result<void> finish(std::span<const Signer> signers);

 private:
  [[nodiscard]] Result<void> write(ByteView bytes);
  [[nodiscard]] Result<void> pad();
  [[nodiscard]] Result<void> add(const Digest& key, PackKind kind, ByteView bytes);
  [[nodiscard]] bool has(const Digest& key) const;

  const PackSink sink_;
  std::uint64_t at_ = 0;
  Bytes header_;
  std::vector<PackRow> rows_;
};

}  // namespace kiln::cache
