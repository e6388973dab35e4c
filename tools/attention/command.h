// `kiln attention`: its options, and its actions.

#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

#include "attention/explain.h"
#include "cudnn/plan_service.h"
#include "device/device_properties.h"
#include "kiln/result.h"
#include "tools/architectures.h"
#include "tools/attention/problem.h"
#include "tools/context.h"
#include "util/try.h"

namespace kiln::tools {

struct AttentionOptions {
  std::string action;
  ArchitectureOptions devices;
  ProblemOptions problem;
  std::string parallelism;
  // Of explain.
  std::string cudnn;
  bool matrix = false;
  std::string driver;
  // Of warm.
  std::string preset;
  bool dry_run = false, fail_fast = false, kiln = false;
};

// Errors of each: kInvalidArgument for a flag; otherwise, what stops the whole action.
[[nodiscard]] Result<int> explain_attention(Context& context,
                                            const AttentionOptions& options);
[[nodiscard]] Result<int> warm_attention(Context& context,
                                         const AttentionOptions& options);
[[nodiscard]] Result<int> explain_missing_plan(Context& context,
                                               const AttentionOptions& options);

/// kInvalidArgument: "attention: <message>".
template <typename... Values>
[[nodiscard]] tl::unexpected<Error> wrong_attention(fmt::format_string<Values...> why,
                                                    Values&&... values) {
  return refuse("attention: " + fmt::format(why, std::forward<Values>(values)...));
}

/// The architectures that --arch names; `native` stands for those present. Empty
/// without --arch. Errors: kInvalidArgument.
[[nodiscard]] Result<std::vector<ComputeCapability>> named_architectures(
    const Config& config, const ArchitectureOptions& options);

/// A device, or only an architecture that no published device has. A plan is bound to a
/// device, so such an architecture can have kernels but no plan.
struct AttentionTarget {
  ComputeCapability capability;
  std::optional<device::DeviceProperties> device{};
};

/// The targets of plans and kernels: the profiles; for an architecture, every published
/// device that has it; else the devices present. Devices that a plan cannot tell apart
/// count once. Errors: as plan_devices(), but an architecture that no published device
/// has is no error.
[[nodiscard]] Result<std::vector<AttentionTarget>> attention_targets(
    const Config& config, const AttentionOptions& options);

/// kInvalidArgument: there is no published device of that architecture.
[[nodiscard]] tl::unexpected<Error> no_published_device(ComputeCapability capability);

/// The devices to build plans for, selected as by attention_targets(). Errors:
/// kInvalidArgument (an architecture of no published device), those of reading a
/// profile, kDevice.
[[nodiscard]] Result<std::vector<device::DeviceProperties>> plan_devices(
    const Config& config, const AttentionOptions& options);

/// The devices that a profile describes, or that are present; none for an architecture,
/// which several devices have. With the driver that `config` is for. Otherwise as
/// plan_devices().
[[nodiscard]] Result<std::vector<device::DeviceProperties>> described_devices(
    const Config& config, const ArchitectureOptions& options);

/// Asks cuDNN by building a plan, or by finding a built one.
[[nodiscard]] attention::AskCudnn ask_cudnn(PlanService& plans,
                                            const device::DeviceProperties& device,
                                            const std::stop_token& stop);

}  // namespace kiln::tools
