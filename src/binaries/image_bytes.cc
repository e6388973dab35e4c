#include "binaries/image_bytes.h"

#include <lz4.h>

#include <algorithm>

#include "util/try.h"

namespace kiln::binaries {
namespace {

tl::unexpected<Error> corrupt(const FatBinaryEntry& entry, std::string_view cause) {
  return fail(ErrorCode::kCorrupt, "{}: its image for {} cannot be decompressed: {}",
              entry.image.name(), to_string(entry.target), cause);
}

Result<Bytes> read_lz4(const FatBinaryEntry& entry, std::uint64_t most) {
  const int room = static_cast<int>(std::min<std::uint64_t>(most, LZ4_MAX_INPUT_SIZE));
  // So much holds `room` bytes, after the length of a run that may go on to the end.
  const std::uint64_t longest_length = entry.image.size() / 255 + 64;
  const Bytes stored = KILN_TRY(entry.image.read_up_to(
      0, static_cast<std::uint64_t>(LZ4_compressBound(room)) + longest_length));
  Bytes bytes(static_cast<std::size_t>(room));
  const int n =
      LZ4_decompress_safe_partial(reinterpret_cast<const char*>(stored.data()),
                                  reinterpret_cast<char*>(bytes.data()),
                                  static_cast<int>(stored.size()), room, room);
  if (n < 0)
    return corrupt(entry, "a bad LZ4 block");
  bytes.resize(static_cast<std::size_t>(n));
  return bytes;
}

}  // namespace

Result<Bytes> ImageReader::read_zstd(const FatBinaryEntry& entry, std::uint64_t most) {
  constexpr std::uint64_t kChunk = 32ULL << 10U;
  if (zstd_ == nullptr)
    return fail(ErrorCode::kResourceLimit, "no memory for zstd");
  ZSTD_DCtx_reset(zstd_.get(), ZSTD_reset_session_only);
  Bytes bytes(most);
  ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
  std::size_t left = 1;  // 0 at the end of the frame
  for (std::uint64_t at = 0; left != 0 && out.pos < out.size; at += kChunk) {
    const Bytes chunk = KILN_TRY(entry.image.read_up_to(at, kChunk));
    if (chunk.empty())
      return corrupt(entry, "it is cut off");
    ZSTD_inBuffer in{chunk.data(), chunk.size(), 0};
    while (in.pos < in.size && out.pos < out.size && left != 0) {
      left = ZSTD_decompressStream(zstd_.get(), &out, &in);
      if (ZSTD_isError(left) != 0)
        return corrupt(entry, ZSTD_getErrorName(left));
    }
  }
  bytes.resize(out.pos);
  return bytes;
}

Result<Bytes> ImageReader::read(const FatBinaryEntry& entry, std::uint64_t most) {
  const std::uint64_t wanted = std::min(most, entry.bytes);
  switch (entry.compression) {
    case Compression::kNone:
      return entry.image.read_up_to(0, wanted);
    case Compression::kLz4:
      return read_lz4(entry, wanted);
    case Compression::kZstd:
      return read_zstd(entry, wanted);
  }
  return corrupt(entry, "of no compression");
}

}  // namespace kiln::binaries
