// A device described in a file, so that kernels and plans can be built for it where it
// is not present. JSON with cuDNN's 23 device-property keys; further keys are ignored.

#pragma once

#include <filesystem>
#include <string>

#include "device/architecture.h"
#include "device/driver.h"
#include "kiln/result.h"

namespace kiln::device {

struct DeviceProfile {
  std::string name;              // deviceName
  ComputeCapability capability;  // deviceVer: 100 * major + 10 * minor
};

/// Errors: kNotFound (no such file), kInvalidArgument (not JSON, a key missing or of
/// another type; names file and key), kIo.
[[nodiscard]] Result<DeviceProfile> read_profile(const std::filesystem::path& path);

/// The profile of a device that is present, as JSON text with cuDNN's 23 keys.
/// Errors: kDevice, naming the call; kInvalidArgument for an ordinal that is not there.
[[nodiscard]] Result<std::string> describe_device(const Driver& driver, int ordinal);

}  // namespace kiln::device
