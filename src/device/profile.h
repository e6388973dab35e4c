// A profile describes a device, in a file or published with Kiln, so that kernels and
// plans can be built without it. JSON with cuDNN's 23 device-property keys; other keys
// are ignored. profiles/README.md lists the published ones.

#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "device/architecture.h"
#include "device/device_properties.h"
#include "device/driver.h"
#include "kiln/result.h"

namespace kiln::device {

struct DeviceProfile {
  std::string name;              // deviceName
  ComputeCapability capability;  // deviceVer: 100 * major + 10 * minor
};

/// To build kernels: only deviceName and deviceVer are required. `what` is a file if
/// one exists, or if it has a '/' or ends in ".json"; otherwise it is the name of a
/// published profile.
/// Errors: kNotFound (neither; with the published names and the nearest),
/// kInvalidArgument (not JSON, a key missing or of a wrong type; names file and key),
/// kIo.
[[nodiscard]] Result<DeviceProfile> read_profile(const std::filesystem::path& what);

/// To build plans: all 23 keys are required. Otherwise as read_profile().
[[nodiscard]] Result<DeviceProperties> read_device_properties(
    const std::filesystem::path& what);

struct PublishedProfile {
  std::string_view name;  // "h100-sxm"
  std::string_view text;
};
/// Sorted by name.
[[nodiscard]] std::span<const PublishedProfile> published_profiles();

/// The profile of a device that is present, as JSON text with cuDNN's 23 keys.
/// Errors: those of device_properties().
[[nodiscard]] Result<std::string> describe_device(const Driver& driver, int ordinal);

}  // namespace kiln::device
