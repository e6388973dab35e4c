// Every architecture that any NVRTC (7.0 and later) ever built for, and what Kiln knows
// of it. To make a new one known, add its line here.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "device/architecture.h"
#include "device/cuda_version.h"

namespace kiln::device {

struct KnownArchitecture {
  ComputeCapability capability;
  CudaVersion first;                    // NVRTC that builds for it
  std::optional<CudaVersion> last;      // none: still supported
  std::optional<CudaVersion> first_a;   // since when with suffix `a`; none: never
  std::optional<CudaVersion> first_f;   // since when with suffix `f`; none: never
  int family;                           // those of one run each other's `f` code
  bool is_integrated;                   // built into a Tegra chip
  std::int64_t shared_bytes_per_block;  // at most, where a kernel asks for it
};

/// Ascending.
[[nodiscard]] std::span<const KnownArchitecture> known_architectures();

/// Null for one that is not known, such as one that is newer than this table.
[[nodiscard]] const KnownArchitecture* find_known(ComputeCapability capability);

}  // namespace kiln::device
