// Every architecture that any NVRTC (7.0 and later) has built for, with its properties.
// To add an architecture, add its line here.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "device/architecture.h"
#include "device/cuda_version.h"

namespace kiln::device {

struct KnownArchitecture {
  ComputeCapability capability;
  CudaVersion first;                   // first NVRTC that builds for it
  std::optional<CudaVersion> last;     // last such NVRTC; none: still supported
  std::optional<CudaVersion> first_a;  // first NVRTC with suffix `a`; none: never
  std::optional<CudaVersion> first_f;  // first NVRTC with suffix `f`; none: never
  int family;                          // see in_family(); 0: none
  bool is_integrated;                  // built into a Tegra chip
  std::int64_t shared_kib_per_block;   // maximum, with opt-in
};

/// In ascending order of capability.
[[nodiscard]] std::span<const KnownArchitecture> known_architectures();

/// Null if it is unknown, for example newer than this table.
[[nodiscard]] const KnownArchitecture* find_known(ComputeCapability capability);

}  // namespace kiln::device
