// Compute capabilities, architectures and compile targets.
// Source of the compatibility rules: CUDA C++ Programming Guide, "Compute Capabilities"
// and "Binary Compatibility"; NVCC documentation, "GPU Feature List".

#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/device.h"
#include "kiln/result.h"

namespace kiln::device {

using kiln::ComputeCapability;

enum class ArchSuffix : std::uint8_t {
  kNone,  // runs on the same major version, this minor or higher
  kA,     // architecture specific: runs on exactly this capability
  kF,     // family specific: runs on the same family, this minor or higher
};

/// What code is compiled for: a capability and a suffix.
struct Architecture {
  ComputeCapability capability;
  ArchSuffix suffix = ArchSuffix::kNone;
  friend auto operator<=>(const Architecture&, const Architecture&) = default;
};

/// "9.0", "9.0a", "10.0f": how Kiln prints one.
[[nodiscard]] std::string to_string(Architecture architecture);

/// Reads "9.0", "9.0a", "sm_90", "sm_90a", "compute_90" and "90"; "100f", "10.0f";
/// "lto_90".
/// Checks the form only, not whether any NVRTC knows the architecture.
/// Errors: kInvalidArgument, with the accepted forms.
[[nodiscard]] Result<Architecture> parse_architecture(std::string_view text);

enum class ImageKind : std::uint8_t {
  kCubin,
  kPtx,
  kLtoIr,  // no device loads it: nvJitLink makes a cubin of it
};

/// What to compile for: sm_90a is a cubin, compute_90 is PTX, lto_90 is LTO-IR (as for
/// nvcc).
struct Target {
  Architecture architecture;
  ImageKind kind = ImageKind::kCubin;
  friend auto operator<=>(const Target&, const Target&) = default;
};

/// "sm_90a", "compute_90" or "lto_90": the key's field.
[[nodiscard]] std::string to_string(Target target);

/// "9.0a", "compute_90" or "lto_90": how `--arch` and manifests name one, and Kiln
/// prints it.
[[nodiscard]] std::string arch_name(Target target);

/// Reads what parse_architecture() reads; "compute_90" means PTX, "lto_90" LTO-IR, all
/// else a cubin.
/// Errors: kInvalidArgument.
[[nodiscard]] Result<Target> parse_target(std::string_view text);

/// What `--arch` was given: "7.5,8.6,compute_90,native".
struct TargetList {
  std::vector<Target> targets;  // in the order given, without duplicates
  bool native = false;          // "native": also the devices present
  friend bool operator==(const TargetList&, const TargetList&) = default;
};

/// Parses a comma-separated list. Errors: kInvalidArgument, also for an empty element.
[[nodiscard]] Result<TargetList> parse_target_list(std::string_view text);

}  // namespace kiln::device
