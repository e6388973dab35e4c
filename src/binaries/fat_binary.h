// Fat binaries: what nvcc puts into a host object, so that the driver finds an image
// for its device. Reads their headers; device_code.cc reads what they hold.
//
// NVIDIA does not document the format. Measured on what nvcc 11.8, 12.8 and 13.0 make,
// with cuobjdump 13.5 as the oracle; all integers are little-endian.
//
//   fat binary   0 magic BA55ED50 (u32) · 4 version 1 (u16) · 6 size of this header
//   (u16)
//                8 bytes of all entries (u64)
//   entry        0 kind: 1 PTX, 2 cubin, 8 LTO-IR (u16) · 4 size of this header (u32)
//                8 bytes of the image with its padding (u64)
//               16 bytes of the compressed image, else 0 (u32)
//               24 minor, 26 major version of the PTX ISA (u16 each)
//               28 number of the architecture: 90, 103 (u32)
//               40 flags (u64): 2000 LZ4 block, 8000 zstd frame, 10'0000 suffix a,
//                  20'0000 suffix f
//               56 bytes of the image decompressed, else 0 (u64)
//
// Fat binaries of a section follow one another, with zeros between them.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "device/architecture.h"
#include "device/cuda_version.h"
#include "kiln/result.h"
#include "util/bytes.h"
#include "util/file_range.h"
#include "util/words.h"

namespace kiln::binaries {

enum class Compression : std::uint8_t { kNone, kLz4, kZstd };

struct FatBinaryEntry {
  device::Target target;
  Compression compression = Compression::kNone;
  std::optional<device::CudaVersion> isa;  // of PTX
  FileRange image;                         // as stored, without padding
  std::uint64_t bytes = 0;                 // decompressed, as its header says
};

/// Entries of unknown kinds are not in it.
using FatBinary = std::vector<FatBinaryEntry>;

/// Whether `begin` is that of a fat binary.
[[nodiscard]] bool is_fat_binary(ByteView begin);

/// Calls `take` with each fat binary of a section, or of a file of them; ends at its
/// first error. Reads their headers alone. Errors: that; kCorrupt; kIo; kResourceLimit,
/// above 1,000,000 entries.
[[nodiscard]] Result<void> read_fat_binaries(
    const FileRange& section,
    const std::function<Result<void>(const FatBinary&)>& take);

}  // namespace kiln::binaries

namespace kiln {
template <>
inline constexpr std::array<std::string_view, 3> kWords<binaries::Compression>{
    "none", "lz4", "zstd"};
}  // namespace kiln
