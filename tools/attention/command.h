// `kiln attention`: its options, its actions, and what they share: the flags that
// describe a problem, devices, and plans as items of a run of builds.

#pragma once

#include <fmt/core.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/explain.h"
#include "attention/problem.h"
#include "cudnn/plan_service.h"
#include "device/device_properties.h"
#include "kiln/result.h"
#include "tools/architectures.h"
#include "tools/build_run.h"
#include "tools/context.h"
#include "tools/option_set.h"
#include "util/try.h"

namespace kiln::tools {

/// What the command line says, by the fields of attention/problem_table.h; "window" is
/// both sides of one.
struct ProblemOptions {
  std::map<std::string_view, std::string> texts;  // empty: not given
  std::map<std::string_view, bool> flags;

  [[nodiscard]] const std::string& text(std::string_view field) const {
    return texts.at(field);
  }
};

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

/// kInvalidArgument: "attention: <message>".
template <typename... Values>
[[nodiscard]] tl::unexpected<Error> wrong_attention(fmt::format_string<Values...> why,
                                                    Values&&... values) {
  return refuse("attention: " + fmt::format(why, std::forward<Values>(values)...));
}

void add_problem_options(OptionSet& cli, ProblemOptions& options);

/// A problem that passes validate(). Errors: kInvalidArgument, naming the flag.
[[nodiscard]] Result<attention::Problem> read_problem(const ProblemOptions& options);

/// Applies the given flags to `problem`, and then sets its strides. Errors: as
/// read_problem().
[[nodiscard]] Result<attention::Problem> read_problem_over(
    const ProblemOptions& options, attention::Problem problem);

/// `parsed`; its error, if any, names `flag`.
template <typename T>
Result<T> named(std::string_view flag, Result<T> parsed) {
  if (!parsed)
    return fail(parsed.error().code,
                "attention: " + std::string(flag) + " " + parsed.error().message);
  return parsed;
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

/// What is shown of a problem on a device, or on an architecture alone; its `keyed` is
/// empty.
[[nodiscard]] BuildItem problem_item(const attention::Problem& problem,
                                     const AttentionTarget& target);

/// The plan of a problem for a device; its `keyed` is the plan's, or the error that
/// keeps it from having a key.
[[nodiscard]] BuildItem plan_item(PlanService& plans, const attention::Problem& problem,
                                  const device::DeviceProperties& device);

/// Asks cuDNN by building a plan, or by finding a built one.
[[nodiscard]] attention::AskCudnn ask_cudnn(PlanService& plans,
                                            const device::DeviceProperties& device,
                                            const std::stop_token& stop);

}  // namespace kiln::tools
