// Packs as files that the user names: written whole or not at all, compressed where the
// name ends in .zst, and read back from either form.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "cache/cache.h"
#include "cache/pack.h"
#include "codec/signature.h"
#include "codec/trusted_keys.h"
#include "kiln/result.h"
#include "util/bytes.h"
#include "util/unique_fd.h"
#include "util/write_file.h"

namespace kiln::tools {

/// A pack that takes the place of `path` at commit(); until then, and if that is never
/// called, `path` stays as it was. Thread safety: none.
class PackFile {
 public:
  /// Errors: kIo, kUnavailable (zstd).
  [[nodiscard]] static Result<std::unique_ptr<PackFile>> create(
      const std::filesystem::path& path);
  PackFile(const PackFile&) = delete;
  PackFile& operator=(const PackFile&) = delete;
  ~PackFile();

  [[nodiscard]] Result<void> write(ByteView bytes);
  /// Reads back what was written, with every check of a reader, and replaces the file,
  /// synced; with a signer, its .minisig as well, just before it. Returns the bytes of
  /// the file. Errors: kCorrupt, if that is not a pack of so many objects that are all
  /// sound; kCancelled; kIo; those of the signer.
  [[nodiscard]] Result<std::uint64_t> commit(std::uint64_t objects,
                                             const Signer* signer,
                                             const std::stop_token& stop);

 private:
  struct Compressor;

  PackFile(std::filesystem::path path, NewFile file);
  [[nodiscard]] Result<void> write_through(ByteView bytes);
  [[nodiscard]] Result<void> read_back(std::uint64_t objects,
                                       const std::stop_token& stop) const;

  const std::filesystem::path path_;
  NewFile file_;
  std::unique_ptr<Compressor> compressor_;  // null: written as it is
  std::uint64_t plain_bytes_ = 0;
  std::uint64_t written_bytes_ = 0;
};

/// What "job.kpack.minisig" says, beside job.kpack. Errors: kNotFound; kIo;
/// kResourceLimit.
[[nodiscard]] Result<std::string> read_minisig(const std::filesystem::path& path);

/// Writes that file; without a `text` removes what is there, since it is of the pack
/// before. Errors: kIo.
[[nodiscard]] Result<void> replace_minisig(const std::filesystem::path& path,
                                           std::string_view text);

/// Blake2b of a file, which minisign signs. Errors: kIo.
[[nodiscard]] Result<Blake2b512> blake2b_of(int file,
                                            const std::filesystem::path& path);

/// A file that begins as a pack does, compressed or not, and that only trusted users
/// can write. Errors: those of open_trusted_file(); kInvalidArgument.
[[nodiscard]] Result<UniqueFd> open_packed_file(const std::filesystem::path& path,
                                                const cache::TrustPolicy& trust);

/// Whose signature a pack needs.
struct PackSigning {
  const TrustedKeys* keys = nullptr;  // theirs, if it has any; null: nobody's
  bool is_needed = true;              // in any case
  std::string name{};                 // that is needed with it; empty: any
  bool takes_nameless = false;        // as of version 1
  /// What its signature file says, "" if there is none. Called at most once, and only
  /// if there are keys and what the pack itself has is not enough.
  std::function<Result<std::string>()> minisig{};
};

/// Opens such a pack; the file beside it is its signature file. Errors: those of
/// Pack::open, check_minisig() and check_pack_is(); kResourceLimit, where it
/// decompresses to too much.
[[nodiscard]] Result<std::unique_ptr<const cache::Pack>> open_pack_file(
    const std::filesystem::path& path, const cache::TrustPolicy& trust,
    PackSigning signing);

/// The same of a file that is open and stays so; messages call it `name`. What it
/// decompresses to is kept in the first of `scratch` that takes a file.
[[nodiscard]] Result<std::unique_ptr<const cache::Pack>> open_pack(
    int file, const std::filesystem::path& name, const cache::TrustPolicy& trust,
    const PackSigning& signing, std::span<const std::filesystem::path> scratch);

}  // namespace kiln::tools
