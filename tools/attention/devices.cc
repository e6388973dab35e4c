// Selects the devices of `kiln attention`, and asks cuDNN about one of them, or for a
// plan.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "attention/plan_binding.h"
#include "attention/problem_codec.h"
#include "device/cuda_version.h"
#include "device/known_architectures.h"
#include "device/profile.h"
#include "device/target.h"
#include "tools/attention/command.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using device::DeviceProperties;

Result<ComputeCapability> known(device::Target target) {
  const device::Architecture architecture = target.architecture;
  if (target.kind != device::ImageKind::kCubin)
    return wrong_attention(
        "--arch: {} names no cubin, and a plan is for a device: write {}",
        arch_name(target), to_string(architecture));
  for (const auto& each : device::known_architectures()) {
    if (each.capability == architecture.capability)
      return architecture.capability;
  }
  return wrong_attention("--arch: no NVRTC ever built for {}", to_string(architecture));
}

/// Adds a device, unless a plan cannot tell it from one that is already there.
Result<void> add_once(std::vector<AttentionTarget>& devices, DeviceProperties device) {
  const auto bound = KILN_TRY(attention::binding_of(device.cudnn_json()));
  for (const AttentionTarget& each : devices) {
    if (!each.device)
      continue;
    const auto other = KILN_TRY(attention::binding_of(each.device->cudnn_json()));
    if (attention::describe_difference(other, bound).empty())
      return {};
  }
  const ComputeCapability capability = device.capability();
  devices.push_back({capability, std::move(device)});
  return {};
}

Result<void> add_present(const Config& config, std::vector<AttentionTarget>& devices) {
  const auto driver = KILN_TRY(
      device::Driver::open(config.driver.value_or(""), LibraryPlaces::of_process()));
  if (driver) {
    for (const Device& each : KILN_TRY(driver->devices()))
      KILN_TRY(add_once(devices,
                        KILN_TRY(device::device_properties(*driver, each.ordinal))));
  }
  if (devices.empty())
    return wrong_attention(
        "no NVIDIA device is present here, so name a device: --arch 9.0 or --profile "
        "FILE|NAME");
  return {};
}

Result<void> add_published(ComputeCapability capability,
                           std::vector<AttentionTarget>& devices) {
  bool is_published = false;
  for (const device::PublishedProfile& each : device::published_profiles()) {
    auto properties = KILN_TRY(device::parse_device_properties(each.text));
    if (properties.capability() != capability)
      continue;
    is_published = true;
    KILN_TRY(add_once(devices, std::move(properties)));
  }
  if (!is_published && std::ranges::find(devices, capability,
                                         &AttentionTarget::capability) == devices.end())
    devices.push_back({capability});
  return {};
}

Result<std::vector<AttentionTarget>> listed_devices(
    const Config& config, const ArchitectureOptions& options) {
  std::vector<AttentionTarget> devices;
  for (const std::string& text : options.lists) {
    const auto list = KILN_TRY(device::parse_target_list(text));
    for (const device::Target each : list.targets)
      KILN_TRY(add_published(KILN_TRY(known(each)), devices));
    if (list.native)
      KILN_TRY(add_present(config, devices));
  }
  for (const std::string& profile : options.profiles)
    KILN_TRY(add_once(devices,
                      KILN_TRY(from_input(device::read_device_properties(profile)))));
  if (!is_given(options))
    KILN_TRY(add_present(config, devices));
  return devices;
}

}  // namespace

Result<std::vector<ComputeCapability>> named_architectures(
    const Config& config, const ArchitectureOptions& options) {
  std::vector<ComputeCapability> found;
  for (const std::string& text : options.lists) {
    const auto list = KILN_TRY(device::parse_target_list(text));
    for (const device::Target each : list.targets)
      found.push_back(KILN_TRY(known(each)));
    if (!list.native)
      continue;
    const auto present = KILN_TRY(devices_present(config));
    if (present.empty())
      return wrong_attention(
          "no NVIDIA device is present here, so name a device: --arch 9.0");
    found.insert(found.end(), present.begin(), present.end());
  }
  return found;
}

tl::unexpected<Error> no_published_device(ComputeCapability capability) {
  std::set<ComputeCapability> described;
  for (const device::PublishedProfile& each : device::published_profiles()) {
    if (const auto properties = device::parse_device_properties(each.text))
      described.insert(properties->capability());
  }
  std::vector<std::string> known;
  for (const ComputeCapability each : described) known.push_back(to_string(each));
  return wrong_attention(
      "--arch {}: a plan is bound to a device, and there is no published one of that "
      "architecture ({} have some); give --profile FILE, as `kiln doctor --profile` "
      "writes it on such a machine",
      to_string(capability), fmt::join(known, ", "));
}

Result<std::vector<DeviceProperties>> plan_devices(const Config& config,
                                                   const AttentionOptions& options) {
  std::vector<DeviceProperties> devices;
  for (AttentionTarget& each : KILN_TRY(attention_targets(config, options))) {
    if (!each.device)
      return no_published_device(each.capability);
    devices.push_back(*std::move(each.device));
  }
  return devices;
}

Result<std::vector<AttentionTarget>> attention_targets(
    const Config& config, const AttentionOptions& options) {
  auto devices = KILN_TRY(listed_devices(config, options.devices));
  const auto version = KILN_TRY(parse_driver_option(options.driver));
  if (!version)
    return devices;
  for (AttentionTarget& each : devices) {
    if (each.device)
      each.device->driver_version = device::driver_value(*version);
  }
  return devices;
}

Result<std::vector<DeviceProperties>> described_devices(
    const Config& config, const ArchitectureOptions& options) {
  std::vector<AttentionTarget> found;
  bool present = !is_given(options);
  for (const std::string& text : options.lists)
    present = present || KILN_TRY(device::parse_target_list(text)).native;
  if (present)
    KILN_TRY(add_present(config, found));
  for (const std::string& profile : options.profiles)
    KILN_TRY(
        add_once(found, KILN_TRY(from_input(device::read_device_properties(profile)))));
  std::vector<DeviceProperties> devices;
  for (AttentionTarget& each : found) {
    if (config.for_driver)
      each.device->driver_version = device::driver_value(*config.for_driver);
    devices.push_back(*std::move(each.device));
  }
  return devices;
}

BuildItem problem_item(const attention::Problem& problem,
                       const AttentionTarget& target) {
  BuildItem item{.named_as = "template",
                 .name = std::string(PlanService::name_of(problem)),
                 .label = to_string(problem),
                 .params = {},
                 .arch = to_string(target.capability),
                 .device = target.device ? target.device->name : std::string(),
                 .kind = "plan",
                 .keyed = Error{}};
  for (const Field& field : attention::shown_fields(problem).list())
    item.params.emplace(field.label, field.value);
  return item;
}

BuildItem plan_item(PlanService& plans, const attention::Problem& problem,
                    const device::DeviceProperties& device) {
  BuildItem item = problem_item(problem, {device.capability(), device});
  auto keyed = plans.key(problem, device);
  if (keyed)
    item.keyed = *std::move(keyed);
  else
    item.keyed = std::move(keyed).error();
  return item;
}

attention::AskCudnn ask_cudnn(PlanService& plans, const DeviceProperties& device,
                              const std::stop_token& stop) {
  return [&plans, device, stop](const attention::Problem& problem) -> attention::Probe {
    const auto keyed = plans.key(problem, device);
    if (!keyed)
      return {.message = keyed.error().message};
    const auto fetched = plans.fetch(*keyed, stop);
    if (!fetched)
      return {.status = std::string(attention::probe_status(fetched.error().code)),
              .message = fetched.error().message};
    if (fetched->object != nullptr)
      return {.ran = true, .built = true, .status = "built", .message = ""};
    // If several engines refused, the last one's status: it came closest.
    return {.ran = true,
            .built = false,
            .status = fetched->attempts.back().status,
            .message = kiln::to_string(fetched->attempts)};
  };
}

}  // namespace kiln::tools
