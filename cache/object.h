// The object file: one self-describing, immutable, checksummed file per artifact.
// FORMAT.md, "Object", is the contract, byte by byte. Knows nothing of paths.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/metadata.h"
#include "codec/digest.h"
#include "codec/fields.h"
#include "kiln/result.h"
#include "util/bytes.h"
#include "util/file_range.h"

namespace kiln::cache {

/// Bytes on the heap that are not zeroed first: a read overwrites them anyway, and for
/// a small object zeroing costs as much as hashing. Or bytes of something that it keeps
/// alive, such as the body of an answer.
/// Thread safety: as for std::vector.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t size)
      : bytes_(std::make_unique_for_overwrite<std::byte[]>(size)),
        view_(bytes_.get(), size) {}
  Buffer(std::shared_ptr<const void> owner, ByteView bytes)
      : owner_(std::move(owner)), view_(bytes) {}

  /// Null for bytes of something else.
  [[nodiscard]] std::byte* data() { return bytes_.get(); }
  [[nodiscard]] std::size_t size() const { return view_.size(); }
  [[nodiscard]] ByteView view() const { return view_; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::shared_ptr<const void> owner_;
  ByteView view_;
};

enum class Kind : std::uint8_t {
  kCubin = 1,
  kPtx = 2,
  kPlan = 3,
  kLtoIr = 4,
  kFiles = 5,  // of other programs; codec/named_files.h
};
inline constexpr std::uint64_t kKindCount = 5;

/// "cubin", "ptx", "plan".
[[nodiscard]] std::string_view to_string(Kind kind);

/// The checks that a stored object can fail, in the order in which they run.
enum class Check : std::uint8_t {
  kSize,            // shorter than a header, over the limit, or not the size it states
  kMagic,           // wrong magic or trailer
  kFormat,          // an object of another format version
  kChecksum,        // XXH3-128 of the file
  kHeader,          // a field of the header is impossible
  kKey,             // a valid object, but of another key
  kPayload,         // the opener's PayloadCheck: the architecture in the payload
  kMetadata,        // cannot be decoded; found by verify alone
  kPayloadDigest,   // SHA-256 of the payload; found by verify alone
  kPreimageDigest,  // SHA-256 of the preimage is not the key; found by verify alone
  kSections,        // log, source or PTX cannot be decompressed; found by verify alone
  kTarget,          // a valid object, but not for the requested target
};
inline constexpr std::size_t kCheckCount = 12;

/// "size", "magic", ... as in `verify --json`.
[[nodiscard]] std::string_view to_string(Check check);

/// Why bytes are not the object they should be.
struct Rejection {
  Check check;
  std::string detail;
};

[[nodiscard]] inline tl::unexpected<Rejection> reject(Check check, std::string detail) {
  return tl::unexpected<Rejection>({check, std::move(detail)});
}

namespace header {

inline constexpr std::size_t kSectionCount =
    6;  // payload metadata preimage log source ptx
enum class Codec : std::uint32_t { kRaw = 0, kZstd = 1 };

struct Section {
  std::size_t offset = 0;  // in the file
  std::size_t stored_bytes = 0;
  std::size_t raw_bytes = 0;
  Codec codec = Codec::kRaw;
};

}  // namespace header

inline constexpr std::uint64_t kMaxObjectBytes = 512ULL << 20U;
inline constexpr std::size_t kMaxTargetChars = 16;

/// An object to store. Its views must outlive the call that takes it.
struct NewObject {
  Kind kind = Kind::kCubin;
  std::string_view target;  // "sm_90a", "compute_120"; at most 16 characters
  Metadata metadata;
  Fields preimage;   // its digest is the key
  ByteView payload;  // not empty
  std::string_view log;
  std::string_view source;
  std::string_view ptx;
};

/// The bytes of the object file. Cost: SHA-256 of payload and preimage, compression of
/// log, source and PTX.
/// Errors: kInvalidArgument (empty payload, a target too long); kResourceLimit.
[[nodiscard]] Result<Buffer> encode(const NewObject& object);

/// A checked object in memory. Owns its bytes; views of them stay valid for its
/// lifetime, also across a move. Thread safety: immutable.
class StoredObject {
 public:
  /// Encodes a new object, then runs parse() on the bytes. Errors: as encode();
  /// kCorrupt, which would be a bug in Kiln.
  [[nodiscard]] static Result<StoredObject> make(const NewObject& object);

  /// Takes ownership of a file's bytes and checks them as every hit does: size, magic,
  /// format, XXH3-128, header, key. Decodes and copies nothing.
  [[nodiscard]] static tl::expected<StoredObject, Rejection> parse(Buffer bytes,
                                                                   const Digest& key);

  /// The checks of parse(), in as little memory as FileRange::read_in_steps(), whose
  /// steps `each` sees likewise. The target that the header states. Errors: those of
  /// the file.
  [[nodiscard]] static Result<tl::expected<std::string, Rejection>> check_in_steps(
      const FileRange& file, const Digest& key,
      const std::function<void(ByteView)>& each);

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] const Digest& key() const { return key_; }
  [[nodiscard]] std::string_view target() const { return target_; }
  [[nodiscard]] ByteView payload() const { return section(Section::kPayload); }
  /// SHA-256, as the header has it; verify_fully() checks it.
  [[nodiscard]] const Digest& payload_digest() const { return payload_digest_; }
  /// The whole file, as it lies on disk.
  [[nodiscard]] ByteView file() const { return bytes_.view(); }

  /// The lowered names of the entry points, as views into this object. Cheap enough for
  /// every hit. Errors: kCorrupt.
  [[nodiscard]] Result<std::vector<std::string_view>> lowered_names() const {
    return cache::lowered_names(section(Section::kMetadata));
  }

  /// Each call decodes anew. Errors: kCorrupt.
  [[nodiscard]] Result<Metadata> metadata() const {
    return Metadata::decode(section(Section::kMetadata));
  }
  [[nodiscard]] Result<Fields> preimage() const {
    return Fields::decode(section(Section::kPreimage));
  }
  [[nodiscard]] Result<std::string> log() const { return text(Section::kLog); }
  [[nodiscard]] Result<std::string> source() const { return text(Section::kSource); }
  [[nodiscard]] Result<std::string> ptx() const { return text(Section::kPtx); }

  /// The checks too expensive for a hit: both SHA-256 digests, the metadata, the
  /// compressed sections. For `verify`, and for objects from elsewhere.
  [[nodiscard]] tl::expected<void, Rejection> verify_fully() const;

  /// True if payload and entry points are equal: two builds of one key need not agree
  /// on more. Log, PTX and times always differ. The payload of a plan is not compared:
  /// cuDNN leaves uninitialized bytes in it. Nor that of files: other programs write
  /// paths and times into theirs.
  [[nodiscard]] bool same_build(const StoredObject& other) const;

 private:
  enum class Section : std::uint8_t {
    kPayload,
    kMetadata,
    kPreimage,
    kLog,
    kSource,
    kPtx
  };
  StoredObject() = default;
  [[nodiscard]] ByteView section(Section which) const;
  [[nodiscard]] Result<std::string> text(Section which) const;

  Buffer bytes_;
  Kind kind_ = Kind::kCubin;
  Digest key_;
  std::string_view target_;
  Digest payload_digest_;
  std::array<header::Section, header::kSectionCount> sections_;
};

}  // namespace kiln::cache
