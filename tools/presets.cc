#include "tools/presets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "attention/evaluate.h"
#include "request/selection.h"
#include "tools/attention/command.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using attention::Pass;

/// The devices that plans can be built for; or why there are none, whatever the problem
/// is.
Result<std::vector<device::DeviceProperties>> devices_of_plans(
    PlanService& plans, const Config& config, const ArchitectureOptions& options) {
  if (config.attention == AttentionSetting::kKiln)
    return fail(ErrorCode::kUnavailable, "{}=kiln", config.attention_by.name);
  auto devices = KILN_TRY(described_devices(config, options));
  if (devices.empty())
    return fail(ErrorCode::kUnavailable,
                "a plan is for one device, which --profile names");
  KILN_TRY(plans.library());
  KILN_TRY(PlanService::find_worker(config));
  return devices;
}

/// A plan of the preset on one device, or why cuDNN has none: kCompileFailed if it
/// refuses the problem.
Result<BuildItem> item_of(PlanService& plans, const ops::Preset& preset, Pass pass,
                          const device::DeviceProperties& device) {
  const auto version = KILN_TRY(plans.library()).version();
  const auto problem = KILN_TRY(ops::attention_of(preset, pass));
  if (auto refusal = attention::why_not_cudnn(*problem, device.capability(), version))
    return fail(ErrorCode::kCompileFailed, std::move(refusal->text));
  BuildItem item = plan_item(plans, *problem, device);
  if (const auto* const error = std::get_if<Error>(&item.keyed))
    return tl::unexpected(*error);
  return item;
}

}  // namespace

Result<void> add_preset_kernels(BuildService& service,
                                std::span<const ops::Preset> presets, bool attention,
                                const device::BuildFor& build_for,
                                BuildReport& report) {
  const Device device{.capability = device::capability_of(build_for)};
  request::Selection selection(service.catalog());  // equal kernels once
  std::map<std::pair<std::string, Parameters>, std::vector<std::string>> presets_of;
  for (const ops::Preset& preset : presets) {
    ops::Launches launches = KILN_TRY(launches_of(preset, device));
    if (attention) {
      auto more = attention_launches_of(preset, device);
      if (more)
        std::ranges::move(*more, std::back_inserter(launches));
      else if (more.error().code == ErrorCode::kUnavailable)
        print_error(fmt::format("{}: no attention kernel for {}: {}\n", preset.name,
                                to_string(build_for), more.error().message));
      else
        return tl::unexpected(std::move(more).error());
    }
    for (const ops::Launch& launch : launches) {
      auto kernel = KILN_TRY(service.catalog().find(launch.kernel));
      auto params = KILN_TRY(kernel->canonical(launch.parameters));
      auto& wanted_by = presets_of[{std::string(kernel->name()), params.values()}];
      if (wanted_by.empty() || wanted_by.back() != preset.name)
        wanted_by.emplace_back(preset.name);
      selection.add({std::move(kernel), std::move(params)});
    }
  }
  for (const request::TemplateRequest& each : selection.requests()) {
    const std::size_t before = report.items.size();
    add_items(service, Request(each.kernel->name(), each.params.values()), {build_for},
              report);
    for (std::size_t i = before; i < report.items.size(); ++i)
      report.items[i].presets =
          presets_of[{std::string(each.kernel->name()), each.params.values()}];
  }
  return {};
}

Result<void> add_preset_plans(PlanService& plans, const Config& config,
                              const ops::Preset& preset,
                              const ArchitectureOptions& devices, BuildReport& report) {
  const auto problem = KILN_TRY(ops::attention_of(preset, Pass::kForward));
  if (!problem)
    return {};
  report.refused = report.refused.value_or(0);
  std::set<std::string> built;
  std::set<std::string> reasons;
  const auto described = devices_of_plans(plans, config, devices);
  if (!described)
    reasons.insert(described.error().message);
  for (const auto& device :
       described.value_or(std::vector<device::DeviceProperties>())) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      auto item = item_of(plans, preset, pass, device);
      if (!item) {
        const Error& why = item.error();
        const bool is_refused = why.code == ErrorCode::kCompileFailed;
        *report.refused += is_refused ? 1 : 0;
        reasons.insert(fmt::format("{}{}{}: {}", device.name, is_refused ? ", " : "",
                                   is_refused ? word_of(pass) : "", why.message));
        continue;
      }
      built.insert(device.name);
      report.items.push_back(*std::move(item));
    }
  }
  std::string text = fmt::format(
      "{}: attention by Kiln's kernels, for every batch and length", preset.name);
  if (!built.empty())
    text += fmt::format(
        "; by cuDNN on {}, for batch {} and length {} (others: `kiln attention warm "
        "--preset {} --batch N --sq N --skv N`)",
        fmt::join(built, ", "), problem->batch, problem->sq, preset.name);
  if (!reasons.empty())
    text += fmt::format("; no plan of cuDNN: {}", fmt::join(reasons, "; "));
  print_note(printable_lines(text) + "\n");
  return {};
}

}  // namespace kiln::tools
