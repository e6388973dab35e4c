// Chooses what to compile for, given a device or an architecture, a template's
// declaration and an NVRTC. Which NVRTC is used: toolchain.h.

#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "device/architecture.h"
#include "device/cuda_version.h"
#include "kiln/result.h"

namespace kiln::device {

/// What an NVRTC reports about itself.
struct NvrtcFacts {
  CudaVersion version;
  std::vector<ComputeCapability> architectures;  // ascending
  friend bool operator==(const NvrtcFacts&, const NvrtcFacts&) = default;
};

/// True if that NVRTC builds a cubin for exactly that architecture, suffix included.
[[nodiscard]] bool supports(const NvrtcFacts& nvrtc, Architecture architecture);

/// A template's limits exclude a target. No error: there is nothing to build.
struct TargetSkipped {
  std::string reason;  // "softmax needs compute capability 8.0 or higher, not 7.5"
};

/// Either the capability of a device, whatever it is, or a target that was requested by
/// name.
using BuildFor = std::variant<ComputeCapability, Target>;

/// For a device: the exact sm_XY[a|f]; if the device is newer than this NVRTC, the
/// highest cubin that runs on it, else PTX of the highest architecture below it. For a
/// target: exactly that; a cubin without suffix gets the one that the template wants.
/// `declared` are the template's: with 9.0a a device of 9.0 gets sm_90a; with 10.0f one
/// of 10.3 gets sm_103f. `a` wins over `f`. Other devices get no suffix.
/// Errors: kInvalidArgument (no NVRTC ever supported it: exit 2); kUnavailable (another
/// NVRTC does, and the message names it: exit 3).
[[nodiscard]] Result<Target> choose_target(const BuildFor& build_for,
                                           std::span<const Architecture> declared,
                                           const NvrtcFacts& nvrtc);

/// The compute capability to build for.
[[nodiscard]] ComputeCapability capability_of(const BuildFor& build_for);

/// "9.0", "9.0a" or "compute_90": how a message names `build_for`.
[[nodiscard]] std::string to_string(const BuildFor& build_for);

}  // namespace kiln::device
