// The first bytes of an image in a fat binary, decompressed.

#pragma once

#include <zstd.h>

#include <cstdint>
#include <memory>

#include "binaries/fat_binary.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln::binaries {

/// Keeps the memory of a decompressor for the next image. Thread safety: none.
class ImageReader {
 public:
  ImageReader() : zstd_(ZSTD_createDCtx(), &ZSTD_freeDCtx) {}

  /// The first `most` bytes of the image; all of them, if it has no more. Decompresses
  /// and reads little beyond them. Errors: kCorrupt; kIo; kResourceLimit (memory).
  [[nodiscard]] Result<Bytes> read(const FatBinaryEntry& entry, std::uint64_t most);

 private:
  [[nodiscard]] Result<Bytes> read_zstd(const FatBinaryEntry& entry,
                                        std::uint64_t most);

  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> zstd_;  // null: no memory
};

}  // namespace kiln::binaries
