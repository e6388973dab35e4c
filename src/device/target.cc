#include "device/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "device/compatibility.h"
#include "device/known_architectures.h"
#include "util/try.h"

namespace kiln::device {
namespace {

constexpr CudaVersion kOldestOfKiln{12, 0};  // the oldest NVRTC that Kiln works with

// The first NVRTC that builds for `architecture`, suffix included; nullopt: none did.
std::optional<CudaVersion> first_nvrtc(Architecture architecture) {
  const KnownArchitecture* known = find_known(architecture.capability);
  if (known == nullptr)
    return std::nullopt;
  switch (architecture.suffix) {
    case ArchSuffix::kA:
      return known->first_a;
    case ArchSuffix::kF:
      return known->first_f;
    case ArchSuffix::kNone:
      break;
  }
  return known->first;
}

bool lists(const NvrtcFacts& nvrtc, ComputeCapability capability) {
  return std::ranges::find(nvrtc.architectures, capability) !=
         nvrtc.architectures.end();
}

tl::unexpected<Error> never_supported(Architecture architecture) {
  std::vector<std::string> names;
  for (const KnownArchitecture& each : known_architectures())
    names.push_back(to_string(each.capability));
  return refuse(
      "no NVRTC ever built for {}; known are {}, with the suffix a from 9.0 on and f "
      "from 10.0 on",
      to_string(architecture), fmt::join(names, ", "));
}

// Some NVRTC builds for `architecture`, but not this one.
tl::unexpected<Error> needs_other_nvrtc(Architecture architecture,
                                        const NvrtcFacts& nvrtc) {
  const std::optional<CudaVersion> first = first_nvrtc(architecture);
  const KnownArchitecture* known = find_known(architecture.capability);
  const std::string not_this =
      fmt::format("NVRTC {} {} for {}", to_string(nvrtc.version),
                  known != nullptr && known->last && *known->last < nvrtc.version
                      ? "no longer builds"
                      : "does not build",
                  to_string(architecture));
  if (first && known->last && *known->last < kOldestOfKiln)
    return fail(ErrorCode::kUnavailable,
                "{}, and {} was the last NVRTC that did: too old for Kiln, which works "
                "with {} or later",
                not_this, to_string(*known->last), to_string(kOldestOfKiln));
  const std::string from = first ? to_string(std::max(*first, kOldestOfKiln)) : "";
  const std::string who =
      !first        ? "an NVRTC that does"
      : known->last ? fmt::format("NVRTC {} to {}", from, to_string(*known->last))
                    : fmt::format("NVRTC {} or later", from);
  return fail(ErrorCode::kUnavailable, "{}; install {}, or name it in KILN_NVRTC",
              not_this, who);
}

// The suffix of the most specific declared architecture whose code runs on
// `capability`.
ArchSuffix wanted_suffix(ComputeCapability capability,
                         std::span<const Architecture> declared) {
  ArchSuffix wanted = ArchSuffix::kNone;
  for (const Architecture& each : declared) {
    if (each.suffix == ArchSuffix::kNone || !runs_on({each}, capability))
      continue;
    if (each.suffix == ArchSuffix::kA)
      return ArchSuffix::kA;
    wanted = ArchSuffix::kF;
  }
  return wanted;
}

// For a device that `nvrtc` does not list: its highest target that the device can run.
Result<Target> fallback_target(ComputeCapability device, ArchSuffix suffix,
                               const NvrtcFacts& nvrtc) {
  const Architecture exact{device, suffix};
  const KnownArchitecture* known = find_known(device);
  if (known != nullptr && known->last && *known->last < nvrtc.version)
    return needs_other_nvrtc(exact, nvrtc);
  std::optional<Target> cubin;
  std::optional<Target> ptx;
  for (const ComputeCapability each : nvrtc.architectures) {
    const Target as_cubin{{each, suffix}, ImageKind::kCubin};
    if (supports(nvrtc, as_cubin.architecture) && runs_on(as_cubin, device))
      cubin = std::max(cubin, std::optional(as_cubin));
    const Target as_ptx{{each, ArchSuffix::kNone}, ImageKind::kPtx};
    if (suffix == ArchSuffix::kNone && runs_on(as_ptx, device))
      ptx = std::max(ptx, std::optional(as_ptx));
  }
  if (cubin)
    return *cubin;
  if (ptx)
    return *ptx;
  return needs_other_nvrtc(exact, nvrtc);
}

Result<Target> target_for_device(ComputeCapability device,
                                 std::span<const Architecture> declared,
                                 const NvrtcFacts& nvrtc) {
  const ArchSuffix suffix = wanted_suffix(device, declared);
  const Architecture exact{device, suffix};
  if (!lists(nvrtc, device))
    return fallback_target(device, suffix, nvrtc);
  if (!supports(nvrtc, exact))
    return needs_other_nvrtc(exact, nvrtc);
  return Target{exact, ImageKind::kCubin};
}

Result<Target> target_by_name(Target asked, std::span<const Architecture> declared,
                              const NvrtcFacts& nvrtc) {
  Architecture& architecture = asked.architecture;
  if (!supports(nvrtc, architecture)) {
    if (!first_nvrtc(architecture))
      return never_supported(architecture);
    return needs_other_nvrtc(architecture, nvrtc);
  }
  // PTX with a suffix would run on no later device, which is what PTX is for.
  if (asked.kind == ImageKind::kCubin && architecture.suffix == ArchSuffix::kNone)
    architecture.suffix = wanted_suffix(architecture.capability, declared);
  if (!supports(nvrtc, architecture))
    return needs_other_nvrtc(architecture, nvrtc);
  return asked;
}

}  // namespace

bool supports(const NvrtcFacts& nvrtc, Architecture architecture) {
  if (!lists(nvrtc, architecture.capability))
    return false;
  if (architecture.suffix == ArchSuffix::kNone)
    return true;
  if (find_known(architecture.capability) != nullptr) {
    const std::optional<CudaVersion> first = first_nvrtc(architecture);
    return first && nvrtc.version >= *first;
  }
  // Newer than the table: every architecture since 9.0 has `a`, since 10.0 also `f`.
  const int since = architecture.suffix == ArchSuffix::kA ? 9 : 10;
  return architecture.capability.major >= since;
}

Result<Target> choose_target(const BuildFor& build_for,
                             std::span<const Architecture> declared,
                             const NvrtcFacts& nvrtc) {
  if (const auto* device = std::get_if<ComputeCapability>(&build_for))
    return target_for_device(*device, declared, nvrtc);
  return target_by_name(std::get<Target>(build_for), declared, nvrtc);
}

ComputeCapability capability_of(const BuildFor& build_for) {
  const auto* const target = std::get_if<Target>(&build_for);
  return target != nullptr ? target->architecture.capability
                           : std::get<ComputeCapability>(build_for);
}

std::string to_string(const BuildFor& build_for) {
  const auto* const target = std::get_if<Target>(&build_for);
  return target != nullptr ? arch_name(*target)
                           : to_string(std::get<ComputeCapability>(build_for));
}

}  // namespace kiln::device
