// From a device or an architecture asked for, what a template declares and what an
// NVRTC supports: what to compile for. Which NVRTC is taken is toolchain.h's business.

#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "device/architecture.h"
#include "device/cuda_version.h"
#include "kiln/result.h"

namespace kiln::device {

/// What an NVRTC says of itself.
struct NvrtcFacts {
  CudaVersion version;
  std::vector<ComputeCapability> architectures;  // ascending
  friend bool operator==(const NvrtcFacts&, const NvrtcFacts&) = default;
};

/// True if that NVRTC builds a cubin for exactly that architecture, suffix included.
[[nodiscard]] bool supports(const NvrtcFacts& nvrtc, Architecture architecture);

/// What a template declares in its kernel.toml.
struct TemplateTargets {
  std::optional<ComputeCapability> min = {};  // inclusive
  std::optional<ComputeCapability> max = {};  // inclusive
  /// Suffixes wanted: 9.0a means that a device of 9.0 gets sm_90a; 10.0f that one of
  /// 10.3 gets sm_103f. `a` beats `f`. Others get no suffix.
  std::vector<Architecture> specific = {};
};

/// A template's limits exclude this target: no failure, nothing to build.
struct TargetSkipped {
  std::string reason;  // "needs compute capability 8.0 or later, asked for 7.5"
};

/// The one or the other: a device that is there, whatever it is, or an architecture
/// that somebody asked for by name.
using BuildFor = std::variant<ComputeCapability, Architecture>;

using TargetChoice = std::variant<Target, TargetSkipped>;

/// Of a device: the exact sm_XY[a|f]; where the device is newer than this NVRTC, the
/// highest cubin that runs on it, else PTX of the highest architecture below it. Of an
/// architecture: exactly that; without suffix, the one that the template wants for it.
/// Checked in this order: known, supported, limits.
/// Errors: kInvalidArgument (no NVRTC ever had it: exit 2); kUnavailable (another NVRTC
/// has it, and the message says which: exit 3).
[[nodiscard]] Result<TargetChoice> choose_target(const BuildFor& build_for,
                                                 const TemplateTargets& declared,
                                                 const NvrtcFacts& nvrtc);

/// Of the devices that it is for.
[[nodiscard]] ComputeCapability capability_of(const BuildFor& build_for);

/// "9.0" or "9.0a": how a message names `build_for`.
[[nodiscard]] std::string to_string(const BuildFor& build_for);

}  // namespace kiln::device
