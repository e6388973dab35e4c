// Version numbers of CUDA toolkits, of NVRTC and of what a driver supports.

#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "kiln/result.h"

namespace kiln::device {

/// The version of a toolkit or of NVRTC, or the newest that a driver supports.
struct CudaVersion {
  int major = 0;
  int minor = 0;
  friend auto operator<=>(const CudaVersion&, const CudaVersion&) = default;
};

/// "13.0".
[[nodiscard]] std::string to_string(CudaVersion version);

/// Reads "13.0". Errors: kInvalidArgument.
[[nodiscard]] Result<CudaVersion> parse_cuda_version(std::string_view text);

/// Converts cuDriverGetVersion()'s value, 1000 * major + 10 * minor.
[[nodiscard]] CudaVersion cuda_version_of_driver(int value);
/// The inverse.
[[nodiscard]] int driver_value(CudaVersion version);

/// The oldest CUDA whose toolkit writes, and whose driver compiles, PTX of this version
/// of the ISA: 8.7 is of CUDA 12.8. nullopt for a version before CUDA 7.0, or unknown.
[[nodiscard]] std::optional<CudaVersion> cuda_version_of_ptx(CudaVersion isa);

}  // namespace kiln::device
