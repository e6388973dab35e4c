// kiln attention explain: would cuDNN run this attention problem there, and if not, why
// and what to do.

#include "attention/explain.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "attention/explanation_json.h"
#include "cudnn/plan_service.h"
#include "device/profile.h"
#include "tools/attention/command.h"
#include "tools/attention/output.h"
#include "tools/exit_code.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using attention::CudnnVersion;

constexpr const char* kInstalled = "installed";

Result<void> check_given(const AttentionOptions& options) {
  if (options.matrix)
    return {};
  if (!is_given(options.devices))
    return wrong_attention(
        "name the device: --arch A or --profile FILE|NAME, or --matrix");
  if (options.cudnn.empty())
    return wrong_attention("name the cuDNN: --cudnn VERSION or --cudnn installed");
  return {};
}

Result<std::vector<ComputeCapability>> read_architectures(
    const Config& config, const AttentionOptions& options) {
  const ArchitectureOptions& devices = options.devices;
  if (!devices.lists.empty() && !devices.profiles.empty())
    return wrong_attention("--arch and --profile exclude each other");
  if (devices.lists.empty() && devices.profiles.empty())
    return std::vector<ComputeCapability>{{7, 5}, {8, 0},  {8, 6},  {8, 9},
                                          {9, 0}, {10, 0}, {10, 3}, {12, 0}};
  auto found = KILN_TRY(named_architectures(config, devices));
  for (const std::string& profile : devices.profiles)
    found.push_back(KILN_TRY(from_input(device::read_profile(profile))).capability);
  if (found.size() > 1 && !options.matrix)
    return wrong_attention("one architecture at a time; --matrix takes several");
  return found;
}

/// `plans`: null where the installed cuDNN is not asked for.
Result<std::vector<CudnnVersion>> read_versions(PlanService* plans,
                                                const AttentionOptions& options) {
  if (plans != nullptr) {
    const auto library = plans->library();
    if (!library)
      return fail(library.error().code,
                  library.error().message + "; or give --cudnn VERSION");
    return std::vector{library->version()};
  }
  if (!options.cudnn.empty())
    return std::vector{
        KILN_TRY(named("--cudnn", attention::parse_cudnn_version(options.cudnn)))};
  return std::vector<CudnnVersion>{{8, 9, 7},  {9, 0, 0},  {9, 1, 0},  {9, 3, 0},
                                   {9, 5, 0},  {9, 7, 0},  {9, 10, 2}, {9, 11, 0},
                                   {9, 13, 1}, {9, 18, 1}, {9, 19, 0}, {9, 21, 0}};
}

/// A probe that does not ask cuDNN, and answers with the reason why.
attention::AskCudnn unable(std::string why) {
  return [why = std::move(why)](const attention::Problem&) -> attention::Probe {
    return {.message = why};
  };
}

/// Probes the first device that can be described: a probe is about an architecture.
attention::AskCudnn probe_for(PlanService& plans, const Config& config,
                              const AttentionOptions& wanted,
                              const std::stop_token& stop) {
  const auto devices = plan_devices(config, wanted);
  return devices ? ask_cudnn(plans, devices->front(), stop)
                 : unable(devices.error().message);
}

}  // namespace

Result<int> explain_attention(Context& context, const AttentionOptions& options) {
  const auto problem = KILN_TRY(read_problem(options.problem));
  KILN_TRY(check_given(options));
  attention::ExplainOptions how;
  if (!options.parallelism.empty())
    how.parallelism = KILN_TRY(
        named("--cp", attention::parse_context_parallelism(options.parallelism)));
  const auto architectures = KILN_TRY(read_architectures(context.config, options));
  const std::stop_token stop = context.stop->token();
  std::unique_ptr<BuildService> service;
  std::unique_ptr<PlanService> plans;
  if (options.cudnn == kInstalled) {
    // A matrix builds nothing, so it leaves no cache behind.
    service = KILN_TRY(BuildService::open(
        context.config, {.stop = stop, .make_root = !options.matrix}));
    plans = std::make_unique<PlanService>(*service, stop);
  }
  const auto versions = KILN_TRY(read_versions(plans.get(), options));
  // A matrix shows the rules only: one plan per cell would take minutes.
  if (plans != nullptr && !options.matrix)
    how.probe = probe_for(*plans, context.config, options, stop);
  std::vector<MatrixCell> cells;
  for (const ComputeCapability arch : architectures) {
    for (const CudnnVersion cudnn : versions)
      cells.push_back({arch, cudnn, explain({problem, arch, cudnn}, how)});
  }
  if (stop.stop_requested())
    return fail(ErrorCode::kCancelled, "stopped before cuDNN had answered");
  if (options.matrix && context.json)
    print_json(matrix_json(cells));
  else if (options.matrix)
    print(matrix_text(problem, cells, context.out));
  else if (context.json)
    print_json(attention::to_json(cells.at(0).explanation));
  else
    print(explanation_text({problem, cells.at(0).arch, cells.at(0).cudnn}, how,
                           cells.at(0).explanation, context.out));
  return kAllDone;
}

}  // namespace kiln::tools
