// The list of targets that --arch and --profile select.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "build/build_service.h"
#include "device/target.h"
#include "kiln/result.h"
#include "tools/option_set.h"

namespace kiln::tools {

struct ArchitectureOptions {
  std::vector<std::string> lists;     // --arch, each a comma-separated list
  std::vector<std::string> profiles;  // --profile, each a file or a published name
};

/// Declares --arch.
void add_arch_option(OptionSet& cli, ArchitectureOptions& options);
/// Declares --profile.
void add_profile_option(OptionSet& cli, ArchitectureOptions& options);

/// Declares --driver.
void add_driver_option(OptionSet& cli, std::string& driver);
/// The CUDA version that --driver gives; none if it is empty. Errors: kInvalidArgument.
[[nodiscard]] Result<std::optional<device::CudaVersion>> parse_driver_option(
    const std::string& driver);

[[nodiscard]] inline bool is_given(const ArchitectureOptions& options) {
  return !options.lists.empty() || !options.profiles.empty();
}

/// Each target once, in the order given. `native`, or no option at all, stands for the
/// devices present. Errors: kInvalidArgument (an unknown form, no device where one is
/// needed); kDevice; those of reading a profile.
[[nodiscard]] Result<std::vector<device::BuildFor>> named_targets(
    BuildService& service, const ArchitectureOptions& options);

/// As named_targets(), and there is a toolchain here for each. Errors: also
/// kInvalidArgument (an architecture that no NVRTC ever supported) and kUnavailable (no
/// NVRTC here builds for it).
[[nodiscard]] Result<std::vector<device::BuildFor>> select_architectures(
    BuildService& service, const ArchitectureOptions& options);

/// The compute capabilities of the devices present, each once, ascending; none without
/// a driver. Errors: kDevice, kUnavailable (a driver that cannot be used).
[[nodiscard]] Result<std::vector<device::ComputeCapability>> devices_present(
    const Config& config);

}  // namespace kiln::tools
