#include "tools/pack_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>

#include "cache/file_system.h"
#include "cache/pack_format.h"
#include "cache/pack_identity.h"
#include "tools/context.h"
#include "tools/in_threads.h"
#include "util/little_endian.h"
#include "util/mutex.h"
#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/scratch_file.h"
#include "util/try.h"
#include "util/write_file.h"

namespace kiln::tools {
namespace {

constexpr mode_t kPackMode = 0644;
constexpr int kLevel = 3;
constexpr int kJob = 2 << 20;
constexpr std::size_t kChunk = std::size_t{1} << 20U;
constexpr std::uint64_t kLargestMinisig = 65536;
// A pack of cubins shrinks four or five times. What grows more than this is no pack.
constexpr std::uint64_t kMostGrowth = 200;
constexpr std::uint64_t kAlwaysAllowed = 64ULL << 20U;

std::filesystem::path minisig_of(const std::filesystem::path& path) {
  return path.native() + ".minisig";
}

/// Calls `take` with every byte of `file`, from its start.
template <typename Take>
Result<void> read_all(int file, const std::filesystem::path& path, const Take& take) {
  Bytes chunk(kChunk);
  std::uint64_t at = 0;
  for (;;) {
    const ssize_t n = cache::pread_all(cache::real_file_system(), file, chunk.data(),
                                       chunk.size(), at);
    if (n < 0)
      return posix_error("read", path, static_cast<int>(-n));
    if (n == 0)
      return {};
    KILN_TRY(take(ByteView(chunk).first(static_cast<std::size_t>(n))));
    at += static_cast<std::uint64_t>(n);
  }
}

/// By which a pack is known.
Result<std::string> begin_of(int file, const std::filesystem::path& path) {
  Bytes begin(cache::pack::kMagic.size());
  const ssize_t n =
      cache::pread_all(cache::real_file_system(), file, begin.data(), begin.size(), 0);
  if (n < 0)
    return posix_error("read", path, static_cast<int>(-n));
  return std::string(as_text(begin));
}

bool is_compressed(const std::string& begin) {
  return begin.starts_with("\x28\xB5\x2F\xFD");
}

Result<UniqueFd> decompressed(int file, const std::filesystem::path& path,
                              std::span<const std::filesystem::path> scratch_folders) {
  struct stat info {};
  if (::fstat(file, &info) != 0)
    return posix_error("stat", path, errno);
  const std::uint64_t most =
      kAlwaysAllowed + kMostGrowth * static_cast<std::uint64_t>(info.st_size);
  UniqueFd scratch = KILN_TRY(open_scratch(scratch_folders));
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                     &ZSTD_freeDCtx);
  if (context == nullptr)
    return fail(ErrorCode::kResourceLimit, "no memory for zstd");
  Bytes chunk(kChunk);
  std::uint64_t written = 0;
  std::size_t left = 0;  // 0 at the end of a frame
  KILN_TRY(read_all(file, path, [&](ByteView bytes) -> Result<void> {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    for (bool is_full = true; in.pos < in.size || is_full;) {
      ZSTD_outBuffer out{chunk.data(), chunk.size(), 0};
      left = ZSTD_decompressStream(context.get(), &out, &in);
      if (ZSTD_isError(left) != 0)
        return fail(ErrorCode::kCorrupt, "{} cannot be decompressed: {}", path.native(),
                    ZSTD_getErrorName(left));
      const ByteView part = ByteView(chunk).first(out.pos);
      const std::string_view magic = cache::pack::kMagic;
      if (!as_text(part).starts_with(
              magic.substr(std::min(written, magic.size()), out.pos)))
        return fail(ErrorCode::kCorrupt, "{}: it does not begin as a pack does",
                    path.native());
      written += out.pos;
      if (written > most)
        return fail(ErrorCode::kResourceLimit,
                    "{} decompresses to more than {} bytes: no pack does",
                    path.native(), most);
      if (auto kept = write_all(scratch.get(), part, path); !kept)
        return kept;
      is_full = out.pos == out.size;
    }
    return {};
  }));
  if (left != 0)
    return fail(ErrorCode::kCorrupt, path.native() + " is cut");
  return scratch;
}

/// For the end of a pack of so many bytes that shrank more than kMostGrowth: readers
/// skip these, and let the pack grow.
Bytes skipped_bytes(std::uint64_t plain, std::uint64_t compressed) {
  const std::uint64_t least =
      plain > kAlwaysAllowed ? (plain - kAlwaysAllowed) / kMostGrowth + 1 : 0;
  Bytes frame;
  if (compressed < least) {
    append_le(frame, std::uint32_t{ZSTD_MAGIC_SKIPPABLE_START});
    append_le(frame, static_cast<std::uint32_t>(least - compressed));
    frame.resize(frame.size() + least - compressed);
  }
  return frame;
}

}  // namespace

struct PackFile::Compressor {
  std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context{ZSTD_createCCtx(),
                                                               &ZSTD_freeCCtx};
  Bytes out = Bytes(ZSTD_CStreamOutSize());

  template <typename Take>
  Result<void> compress(ByteView bytes, ZSTD_EndDirective how, const Take& take) {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    for (;;) {
      ZSTD_outBuffer to{out.data(), out.size(), 0};
      const std::size_t left = ZSTD_compressStream2(context.get(), &to, &in, how);
      if (ZSTD_isError(left) != 0)
        return fail(ErrorCode::kResourceLimit, "zstd: {}", ZSTD_getErrorName(left));
      KILN_TRY(take(ByteView(out).first(to.pos)));
      if (how == ZSTD_e_end ? left == 0 : in.pos == in.size)
        return {};
    }
  }
};

Result<std::unique_ptr<PackFile>> PackFile::create(const std::filesystem::path& path) {
  auto file = KILN_TRY(NewFile::create(path));
  std::unique_ptr<PackFile> made(new PackFile(path, std::move(file)));
  if (path.native().ends_with(".zst")) {
    made->compressor_ = std::make_unique<Compressor>();
    ZSTD_CCtx* const context = made->compressor_->context.get();
    if (context == nullptr ||
        ZSTD_isError(
            ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, kLevel)) != 0 ||
        ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1)) != 0)
      return fail(ErrorCode::kUnavailable, "zstd does not start");
    // In a thread of its own, where this libzstd has threads.
    std::ignore = ZSTD_CCtx_setParameter(context, ZSTD_c_nbWorkers, 1);
    std::ignore = ZSTD_CCtx_setParameter(context, ZSTD_c_jobSize, kJob);
  }
  return made;
}

PackFile::PackFile(std::filesystem::path path, NewFile file)
    : path_(std::move(path)), file_(std::move(file)) {}

PackFile::~PackFile() = default;

Result<void> PackFile::write_through(ByteView bytes) {
  written_bytes_ += bytes.size();
  return write_all(file_.descriptor(), bytes, path_);
}

Result<void> PackFile::write(ByteView bytes) {
  plain_bytes_ += bytes.size();
  if (compressor_ == nullptr)
    return write_through(bytes);
  return compressor_->compress(bytes, ZSTD_e_continue, [this](ByteView compressed) {
    return write_through(compressed);
  });
}

Result<void> PackFile::read_back(std::uint64_t objects,
                                 const std::stop_token& stop) const {
  const auto folder = path_.has_parent_path() ? path_.parent_path() : ".";
  const auto pack = KILN_TRY(open_pack(file_.descriptor(), path_,
                                       cache::TrustPolicy::of_this_process({}),
                                       {.is_needed = false}, std::span(&folder, 1)));
  const auto& bad = pack->bad_rows();
  if (!bad.empty() || pack->unknown_rows() != 0 || pack->object_count() != objects)
    return fail(ErrorCode::kCorrupt,
                "{}: the written pack reads back as {} of {} objects{}{}; no pack "
                "was written",
                path_.native(), pack->object_count(), objects, bad.empty() ? "" : ": ",
                bad.empty() ? "" : bad.front().why);
  Mutex mutex;
  std::optional<std::string> wrong;
  const HeldBytes held(kMostHeld);
  in_threads(kReadingThreads, pack->rows().size(), stop, [&](std::size_t i) {
    const cache::PackRow& row = pack->rows()[i];
    if (row.kind == cache::PackKind::kToolchain)
      return;
    // All else was checked of the same bytes before they were written.
    const auto share = held.take(row.size);
    const auto object =
        pack->read(row, cache::Depth::kHit).map([](const cache::StoredObject&) {});
    const MutexLock lock(mutex);
    if (!object)
      wrong =
          fmt::format("the object {} reads back wrong ({} check: {})", row.key.hex(),
                      to_string(object.error().check), object.error().detail);
  });
  if (wrong)
    return fail(ErrorCode::kCorrupt, "{}: {}; no pack was written", path_.native(),
                *wrong);
  if (stop.stop_requested())
    return fail(ErrorCode::kCancelled, "stopped; no pack was written");
  return {};
}

Result<std::uint64_t> PackFile::commit(std::uint64_t objects, const Signer* signer,
                                       const std::stop_token& stop) {
  if (compressor_ != nullptr) {
    KILN_TRY(compressor_->compress({}, ZSTD_e_end, [this](ByteView compressed) {
      return write_through(compressed);
    }));
    KILN_TRY(write_through(skipped_bytes(plain_bytes_, written_bytes_)));
  }
  if (::fdatasync(file_.descriptor()) != 0)
    return posix_error("sync", path_, errno);
  KILN_TRY(read_back(objects, stop));
  std::string minisig;
  if (signer != nullptr)
    minisig = KILN_TRY(
        make_minisig(KILN_TRY(blake2b_of(file_.descriptor(), path_)), *signer,
                     fmt::format("file:{}\thashed", path_.filename().native())));
  KILN_TRY(replace_minisig(path_, minisig));
  KILN_TRY(file_.commit(kPackMode));
  return written_bytes_;
}

Result<std::string> read_minisig(const std::filesystem::path& path) {
  return read_text_file(minisig_of(path), kLargestMinisig);
}

Result<void> replace_minisig(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path minisig = minisig_of(path);
  if (!text.empty())
    return replace_file(minisig, as_bytes(text), kPackMode);
  if (::unlink(minisig.c_str()) != 0 && errno != ENOENT)
    return posix_error("unlink", minisig, errno);
  return {};
}

Result<Blake2b512> blake2b_of(int file, const std::filesystem::path& path) {
  Blake2bHasher hasher;
  KILN_TRY(read_all(file, path, [&](ByteView bytes) -> Result<void> {
    hasher.update(bytes);
    return {};
  }));
  return hasher.finish();
}

Result<UniqueFd> open_packed_file(const std::filesystem::path& path,
                                  const cache::TrustPolicy& trust) {
  std::error_code unknown;  // then opening it says why
  if (std::filesystem::is_directory(path, unknown))
    return refuse("{} is a folder, and no pack", path.native());
  UniqueFd file = KILN_TRY(
      from_input(cache::open_trusted_file(cache::real_file_system(), trust, path)));
  const std::string begin = KILN_TRY(begin_of(file.get(), path));
  if (begin != cache::pack::kMagic && !is_compressed(begin))
    return refuse("{} is no pack: `kiln pack` makes one", path.native());
  return file;
}

Result<std::unique_ptr<const cache::Pack>> open_pack_file(
    const std::filesystem::path& path, const cache::TrustPolicy& trust,
    PackSigning signing) {
  const UniqueFd file = KILN_TRY(open_packed_file(path, trust));
  signing.minisig = [&path] {
    return Result<std::string>(read_minisig(path).value_or(""));
  };
  const auto scratch = temporary_folder();
  return open_pack(file.get(), path, trust, signing, std::span(&scratch, 1));
}

Result<std::unique_ptr<const cache::Pack>> open_pack(
    int file, const std::filesystem::path& path, const cache::TrustPolicy& trust,
    const PackSigning& signing, std::span<const std::filesystem::path> scratch) {
  UniqueFd plain;
  if (is_compressed(KILN_TRY(begin_of(file, path))))
    plain = KILN_TRY(decompressed(file, path, scratch));
  const auto open = [&](std::span<const PublicKey> beside)
      -> Result<std::unique_ptr<const cache::Pack>> {
    UniqueFd contents(::fcntl(plain ? plain.get() : file, F_DUPFD_CLOEXEC, 0));
    if (!contents)
      return posix_error("duplicate", path, errno);
    return about(path.native(),
                 cache::Pack::from(std::move(contents),
                                   {.file_system = cache::real_file_system(),
                                    .trust = trust,
                                    .keys = signing.keys,
                                    .needs_signature = signing.is_needed,
                                    .beside = beside}));
  };
  // A name is worth as much as the signature that covers it.
  const auto check_name = [&](std::string_view own) {
    const bool is_any = !signing.is_needed || signing.name.empty() ||
                        (own.empty() && signing.takes_nameless);
    return is_any ? Result<void>()
                  : about(path.native(), cache::check_pack_is(own, signing.name));
  };
  auto pack = open({});
  if (pack)
    KILN_TRY(check_name((*pack)->header().name));
  if (pack || signing.keys == nullptr)
    return pack;
  const std::string minisig = KILN_TRY(signing.minisig());
  if (minisig.empty())
    return pack;
  const PublicKey by = KILN_TRY(
      about(minisig_of(path).native(),
            check_minisig(minisig, KILN_TRY(blake2b_of(file, path)), *signing.keys)));
  pack = open(std::span(&by, 1));
  const std::string_view by_signer = signed_file(minisig);
  if (pack)
    KILN_TRY(check_name(by_signer.empty() ? (*pack)->header().name : by_signer));
  return pack;
}

}  // namespace kiln::tools
