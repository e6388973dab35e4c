// A device described in a file or published with Kiln, so that kernels and plans can be
// built for it where it is not present. JSON with cuDNN's 23 device-property keys;
// further keys are ignored. profiles/README.md: those that are published.

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

/// For which kernels are built: of all keys, deviceName and deviceVer have to be there.
/// `what` is a file or the name of a published profile: a file where there is one, or
/// where it has a '/' or ends in ".json".
/// Errors: kNotFound (neither; with the names that there are and the nearest),
/// kInvalidArgument (not JSON, a key missing or of another type; names file and key),
/// kIo.
[[nodiscard]] Result<DeviceProfile> read_profile(const std::filesystem::path& what);

/// For which plans are built: all 23 keys have to be there. Otherwise as
/// read_profile().
[[nodiscard]] Result<DeviceProperties> read_device_properties(
    const std::filesystem::path& what);

struct PublishedProfile {
  std::string_view name;  // "h100-sxm"
  std::string_view text;
};
/// In order of their names.
[[nodiscard]] std::span<const PublishedProfile> published_profiles();

/// The profile of a device that is present, as JSON text with cuDNN's 23 keys.
/// Errors: those of device_properties().
[[nodiscard]] Result<std::string> describe_device(const Driver& driver, int ordinal);

}  // namespace kiln::device
