// Which device code a file holds: a library, a program, an object or an archive of
// objects, a cubin, a fat binary, PTX. Nothing of it is run. verdict.h says on which
// devices it runs.

#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "binaries/fat_binary.h"
#include "device/architecture.h"
#include "device/cuda_version.h"
#include "kiln/result.h"
#include "util/file_range.h"

namespace kiln::binaries {

/// An image, but for its bytes.
struct ImageDescription {
  device::Target target;
  Compression compression = Compression::kNone;
  /// A cubin, or one beside it in the fat binary, says it; of PTX it is the oldest with
  /// its version of the ISA. nullopt: unknown, as always of LTO-IR.
  std::optional<device::CudaVersion> toolkit;
  bool is_relocatable = false;  // it must be linked before a device loads it
  friend auto operator<=>(const ImageDescription&, const ImageDescription&) = default;
};

struct ImageTotals {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;  // as stored
};

struct DeviceCode {
  std::string path;           // of the file
  std::uint16_t machine = 0;  // EM_* of a host file; 0: device code alone
  std::map<ImageDescription, ImageTotals> images;
  /// Each set of images from which the driver chooses one, and how often the file has
  /// it. Without relocatable ones.
  std::map<std::vector<ImageDescription>, std::uint64_t> choices;
};

/// Reads the file's headers, and of each cubin the first bytes. Memory: a few MiB.
/// Thread-safe. Errors: kInvalidArgument (a file of another kind); kCorrupt (also one
/// that ends too early); kUnavailable (a thin archive); kIo; kResourceLimit.
[[nodiscard]] Result<DeviceCode> read_device_code(const FileRange& file);

/// Whether read_device_code() knows a file that begins so. PTX, a text, is not found by
/// this.
[[nodiscard]] bool is_binary(ByteView begin);

/// As much of a file as that needs.
inline constexpr std::uint64_t kBeginBytes = 64;

/// "sass", "ptx", "ltoir".
[[nodiscard]] std::string_view kind_name(device::ImageKind kind);
/// "x86-64", "AArch64", "machine 8"; "" for 0.
[[nodiscard]] std::string machine_name(std::uint16_t machine);
/// That of this machine.
[[nodiscard]] std::string own_machine();

}  // namespace kiln::binaries
