#include "tools/architectures.h"

#include <algorithm>
#include <set>

#include "device/profile.h"
#include "tools/context.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

void add_once(std::vector<device::BuildFor>& list, device::BuildFor what) {
  if (std::find(list.begin(), list.end(), what) == list.end())
    list.push_back(what);
}

Result<void> add_devices(BuildService& service, std::vector<device::BuildFor>& list) {
  const auto devices = KILN_TRY(devices_present(service.config()));
  if (devices.empty()) {
    return refuse(
        "no NVIDIA device is present here, so name the architectures to build for: "
        "--arch 8.0,9.0 or --profile FILE|NAME");
  }
  for (const device::ComputeCapability capability : devices) add_once(list, capability);
  return {};
}

}  // namespace

void add_arch_option(OptionSet& cli, ArchitectureOptions& options) {
  cli.option(
      "--arch", options.lists, "LIST",
      "Architectures: 9.0, 9.0a, sm_90 or native; compute_90 for PTX, lto_90 for "
      "LTO-IR; with commas; may be repeated (default: the devices present)");
}

void add_profile_option(OptionSet& cli, ArchitectureOptions& options) {
  cli.option(
      "--profile", options.profiles, "FILE|NAME",
      "Build for the device that this profile describes: a file, as written by `kiln "
      "doctor --profile`, or a published profile, such as h100-sxm; may be repeated");
}

void add_driver_option(OptionSet& cli, std::string& driver) {
  cli.option("--driver", driver, "VERSION",
             "CUDA version of the driver of the job, as nvidia-smi shows it: 12.4; "
             "selects an NVRTC found here whose kernels that driver loads");
}

Result<std::optional<device::CudaVersion>> parse_driver_option(
    const std::string& driver) {
  constexpr int kNoCuda = 100;  // 535.104 is a driver's own version
  if (driver.empty())
    return std::nullopt;
  const auto version = device::parse_cuda_version(driver);
  if (version && version->major < kNoCuda)
    return *version;
  return refuse(
      "--driver: '{}' is no version of CUDA, such as 12.4; nvidia-smi and `kiln "
      "doctor` show it on the machine of that driver",
      driver);
}

Result<std::vector<device::ComputeCapability>> devices_present(const Config& config) {
  const auto driver = KILN_TRY(
      device::Driver::open(config.driver.value_or(""), LibraryPlaces::of_process()));
  std::set<device::ComputeCapability> capabilities;
  if (driver) {
    for (const Device& info : KILN_TRY(driver->devices()))
      capabilities.insert(info.capability);
  }
  return std::vector(capabilities.begin(), capabilities.end());
}

Result<std::vector<device::BuildFor>> named_targets(
    BuildService& service, const ArchitectureOptions& options) {
  std::vector<device::BuildFor> list;
  for (const std::string& text : options.lists) {
    const auto parsed = KILN_TRY(device::parse_target_list(text));
    for (const device::Target target : parsed.targets) add_once(list, target);
    if (parsed.native)
      KILN_TRY(add_devices(service, list));
  }
  for (const std::string& path : options.profiles)
    add_once(list, KILN_TRY(from_input(device::read_profile(path))).capability);
  if (!is_given(options))
    KILN_TRY(add_devices(service, list));
  return list;
}

Result<std::vector<device::BuildFor>> select_architectures(
    BuildService& service, const ArchitectureOptions& options) {
  auto list = KILN_TRY(named_targets(service, options));
  for (const device::BuildFor& build_for : list)
    KILN_TRY(service.toolchains().choose(build_for));
  return list;
}

}  // namespace kiln::tools
