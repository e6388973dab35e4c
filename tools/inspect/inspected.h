// What `kiln inspect` and `kiln doctor` find out about files: their device code, and a
// verdict for each device.

#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "binaries/device_code.h"
#include "binaries/verdict.h"
#include "build/config.h"
#include "kiln/result.h"

namespace kiln::tools {

struct InspectedDevice {
  ComputeCapability capability;
  std::optional<device::CudaVersion> driver;  // nullopt: unknown
  friend auto operator<=>(const InspectedDevice&, const InspectedDevice&) = default;
};

/// Those present, each once, with their driver; none without one. Errors: kDevice,
/// kUnavailable.
[[nodiscard]] Result<std::vector<InspectedDevice>> inspected_devices(
    const Config& config);

struct InspectedFile {
  std::string path;
  std::string distribution;  // of a Python environment; "" elsewhere
  Result<binaries::DeviceCode> code;

  [[nodiscard]] bool has_code() const { return code && !code->images.empty(); }
};

using TakeInspected = std::function<void(const InspectedFile&)>;

/// The file, each member of a wheel, or each file below a folder that holds device code
/// or is damaged. Errors: kNotFound.
[[nodiscard]] Result<void> inspect_path(const std::filesystem::path& path,
                                        const TakeInspected& take);
/// The same of an environment of Python. Errors: kNotFound, also where none is there.
[[nodiscard]] Result<void> inspect_environment(const std::filesystem::path& root,
                                               const TakeInspected& take);
/// The same of what a process has mapped. Errors: kNotFound, kUnavailable.
[[nodiscard]] Result<void> inspect_process(pid_t pid, const TakeInspected& take);

/// Of each device; none of a file without device code.
[[nodiscard]] std::vector<binaries::Verdict> verdicts_of(
    const InspectedFile& file, const std::vector<InspectedDevice>& devices);

/// An element of "files". `verdicts` are those of the devices.
[[nodiscard]] nlohmann::ordered_json inspected_json(
    const InspectedFile& file, const std::vector<InspectedDevice>& devices,
    const std::vector<binaries::Verdict>& verdicts);

}  // namespace kiln::tools
