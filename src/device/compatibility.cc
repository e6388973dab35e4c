#include "device/compatibility.h"

#include <fmt/format.h>

#include "device/known_architectures.h"
#include "util/try.h"

namespace kiln::device {
namespace {

/// 0 (no family) if the table does not have the capability.
int family_of(ComputeCapability capability) {
  const KnownArchitecture* known = find_known(capability);
  return known != nullptr ? known->family : 0;
}

bool same_major_not_lower(ComputeCapability base, ComputeCapability device) {
  return base.major == device.major && device.minor >= base.minor;
}

bool cubin_without_suffix_runs_on(ComputeCapability base, ComputeCapability device) {
  if (is_integrated(base) || is_integrated(device))
    return base == device;
  return same_major_not_lower(base, device);
}

std::string_view reason(Target target) {
  switch (target.architecture.suffix) {
    case ArchSuffix::kA:
      return "of exactly that compute capability";
    case ArchSuffix::kF:
      return "of its family with a minor version not lower";
    case ArchSuffix::kNone:
      break;
  }
  if (target.kind == ImageKind::kPtx)
    return "of that compute capability or a later one";
  if (is_integrated(target.architecture.capability))
    return "of exactly that compute capability, an integrated one";
  return "of the same major version with a minor version not lower, integrated ones "
         "not included";
}

}  // namespace

bool is_integrated(ComputeCapability capability) {
  const KnownArchitecture* known = find_known(capability);
  return known != nullptr ? known->is_integrated : capability.major == 11;
}

bool in_family(ComputeCapability base, ComputeCapability device) {
  const int family = family_of(base);
  return family != 0 && family == family_of(device) &&
         same_major_not_lower(base, device);
}

bool runs_on(Target target, ComputeCapability device) {
  const auto [base, suffix] = target.architecture;
  if (target.kind == ImageKind::kLtoIr)
    return false;
  switch (suffix) {
    case ArchSuffix::kA:
      return base == device;
    case ArchSuffix::kF:
      return in_family(base, device);
    case ArchSuffix::kNone:
      break;
  }
  return target.kind == ImageKind::kPtx ? device >= base
                                        : cubin_without_suffix_runs_on(base, device);
}

CudaVersion min_driver(ImageKind kind, CudaVersion toolkit) {
  return kind == ImageKind::kPtx ? toolkit : CudaVersion{toolkit.major, 0};
}

bool accepted_by(CudaVersion driver, ImageKind kind, CudaVersion toolkit) {
  return driver >= min_driver(kind, toolkit);
}

std::string why_not(Target target, ComputeCapability device) {
  if (runs_on(target, device))
    return "";
  if (target.kind == ImageKind::kLtoIr)
    return fmt::format("{} is LTO-IR, which no device loads: link it",
                       to_string(target));
  return fmt::format("{} code runs on devices {}, and this device is {}",
                     to_string(target), reason(target), to_string(device));
}

std::string why_not(CudaVersion driver, ImageKind kind, CudaVersion toolkit) {
  if (accepted_by(driver, kind, toolkit))
    return "";
  return fmt::format(
      "{} built by CUDA {} needs a driver for CUDA {} or later, and this driver is for "
      "{}",
      kind == ImageKind::kPtx ? "PTX" : "a cubin", to_string(toolkit),
      to_string(min_driver(kind, toolkit)), to_string(driver));
}

Result<void> check_accepted(CudaVersion driver, ImageKind kind, CudaVersion toolkit) {
  const std::string why = why_not(driver, kind, toolkit);
  if (why.empty())
    return {};
  return fail(
      ErrorCode::kUnavailable,
      "{}; install a newer driver, or build it with an older NVRTC (KILN_TOOLCHAIN)",
      why);
}

}  // namespace kiln::device
