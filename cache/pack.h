// A pack: many objects in one file that is never changed, each found by its key.
// FORMAT.md, "Pack", is the contract. Knows nothing of roots; seeds.h looks up in
// packs.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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
#include "kiln/result.h"
#include "util/bytes.h"
#include "util/kept_fd.h"
#include "util/unique_fd.h"

namespace kiln::cache {

inline constexpr std::uint32_t kPackVersion = 1;
inline constexpr std::uint64_t kMostPackRows = 1'000'000;

/// What a row of the index is about.
enum class PackKind : std::uint32_t {
  kCubin = 1,
  kPtx = 2,
  kPlan = 3,
  kToolchain = 4,  // the record of the NVRTC that built: toolchains/recorded.json
};

/// A row of a pack's index.
struct PackRow {
  Digest key;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  Digest digest;  // SHA-256 of these bytes
  PackKind kind = PackKind::kCubin;
};

/// What a pack is opened with.
struct PackReading {
  FileSystem& file_system;
  const TrustPolicy& trust;
  /// Keys whose signature a pack needs to have, if it has any. Empty: signatures are
  /// not looked at.
  std::span<const PublicKey> keys = {};
  /// True: a pack without a signature by one of `keys` is refused.
  bool needs_signature = false;
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
  /// Reads header, index and footer, and checks all of them, trust and signature.
  /// Cost: SHA-256 of the index, 88 bytes an object. Errors: kNotFound; kUntrusted (as
  /// a root, by its owner, or by a signature); kCorrupt (truncated, changed, no pack);
  /// kUnavailable (of a newer format); kIo.
  [[nodiscard]] static Result<std::unique_ptr<const Pack>> open(
      const std::filesystem::path& path, const PackReading& reading);

  /// The same of a file that is open; whose it is, the caller has checked. Messages do
  /// not name it.
  [[nodiscard]] static Result<std::unique_ptr<const Pack>> from(
      UniqueFd file, const PackReading& reading);

  [[nodiscard]] std::optional<PackRow> find(const Digest& key) const;
  [[nodiscard]] std::size_t row_count() const;
  [[nodiscard]] PackRow row(std::size_t number) const;
  /// Rows of objects.
  [[nodiscard]] std::size_t object_count() const {
    return row_count() - toolchains_.size();
  }

  /// The object of a row, checked as an object from elsewhere: SHA-256 of the row,
  /// every check of a hit, and verify_fully().
  [[nodiscard]] tl::expected<StoredObject, Rejection> read(const PackRow& row) const;

  /// The recorded toolchains, as their JSON files had them.
  [[nodiscard]] const std::vector<std::string>& toolchains() const {
    return toolchains_;
  }
  [[nodiscard]] std::uint64_t size_bytes() const { return size_; }
  [[nodiscard]] const std::string& producer() const { return producer_; }
  [[nodiscard]] const std::vector<Signature>& signatures() const { return signatures_; }

 private:
  class Map;  // of the whole file

  Pack(UniqueFd file, FileSystem& file_system)
      : file_(std::move(file)), file_system_(file_system) {}

  [[nodiscard]] Result<void> load(const PackReading& reading);
  [[nodiscard]] Result<void> check_rows(std::uint64_t end) const;
  [[nodiscard]] Result<void> load_toolchains();
  [[nodiscard]] Result<Bytes> bytes_at(std::uint64_t offset, std::size_t size) const;
  [[nodiscard]] Result<Buffer> buffer_at(const PackRow& row) const;

  const KeptFd file_;
  FileSystem& file_system_;
  std::uint64_t size_ = 0;
  Bytes index_;
  std::string producer_;
  std::vector<std::string> toolchains_;
  std::vector<Signature> signatures_;
  // Set where the file lies on a file system that is never written: elsewhere it could
  // be cut, and an access behind its end would kill the process.
  std::shared_ptr<const Map> map_;
};

/// Takes the bytes of a pack in their order.
using PackSink = std::function<Result<void>(ByteView)>;

/// Writes a pack: begin(), then the objects, then finish(). The same objects in the
/// same order give the same bytes. Thread safety: none.
class PackWriter {
 public:
  explicit PackWriter(PackSink sink) : sink_(std::move(sink)) {}

  /// `producer`, "kiln 0.2.0", is cut after 40 bytes. Errors: those of the sink.
  [[nodiscard]] Result<void> begin(std::string_view producer);
  /// Two of one key are an error, kInvalidArgument. Errors: those of the sink.
  [[nodiscard]] Result<void> add(const StoredObject& object);
  /// A record that is there already is left out.
  [[nodiscard]] Result<void> add_toolchain(std::string_view record);
  /// Index, footer and, with signers, their signatures. Errors: those of the sink and
  /// of the signers.
  [[nodiscard]] Result<void> finish(std::span<const Signer> signers);

  [[nodiscard]] std::uint64_t written_bytes() const { return at_; }

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
