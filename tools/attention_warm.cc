// kiln attention warm: build the plans that a job will ask for, before it starts.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "attention/context_parallel.h"
#include "attention/evaluate.h"
#include "attention/problem_codec.h"
#include "ops/preset.h"
#include "tools/attention_command.h"
#include "tools/build_run.h"
#include "tools/option_values.h"
#include "tools/verbs.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using attention::Pass;
using attention::Problem;
using device::DeviceProperties;

/// What a layer of the model computes in training, as one sequence a batch.
Result<Problem> problem_of(const ops::Preset& preset, Pass pass) {
  if (!preset.attention)
    return wrong_attention(fmt::format("preset {} has no [attention]", preset.name));
  const ops::Preset::Attention& sizes = *preset.attention;
  Problem problem{.pass = pass, .training = true, .dtype = preset.dtype};
  problem.batch = 1;
  problem.heads = sizes.heads;
  problem.kv_heads = sizes.kv_heads;
  problem.sq = problem.skv = sizes.sequence;
  problem.dqk = sizes.head_dim;
  problem.dv = sizes.value_dim;
  problem.mask = sizes.mask == ops::SoftmaxMask::kCausal  ? attention::Mask::kCausal
                 : sizes.mask == ops::SoftmaxMask::kBytes ? attention::Mask::kPadding
                                                          : attention::Mask::kNone;
  return problem;
}

/// The problems that a rank computes: of both passes where a preset or --training asks
/// for them, and of each step of context parallelism.
Result<std::vector<Problem>> wanted_problems(const AttentionOptions& options) {
  std::vector<Problem> whole;
  if (!options.preset.empty()) {
    const auto preset = KILN_TRY(ops::find_preset(options.preset));
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      if (options.problem.pass.empty() || options.problem.pass == to_string(pass))
        whole.push_back(KILN_TRY(
            read_problem_over(options.problem, KILN_TRY(problem_of(preset, pass)))));
    }
    if (whole.empty())
      KILN_TRY(named("--pass", attention::parse_pass(options.problem.pass)));
  } else {
    whole.push_back(KILN_TRY(read_problem(options.problem)));
    if (whole.front().training && whole.front().pass == Pass::kForward) {
      ProblemOptions backward = options.problem;
      backward.pass = to_string(Pass::kBackward);
      whole.push_back(KILN_TRY(read_problem(backward)));
    }
  }
  if (options.parallelism.empty())
    return whole;
  const auto parallelism = KILN_TRY(
      named("--cp", attention::parse_context_parallelism(options.parallelism)));
  std::vector<Problem> steps;
  for (const Problem& each : whole) {
    const auto expansion = attention::expand(each, parallelism);
    if (!expansion.refusals.empty())
      return wrong_attention(fmt::format("--cp {}: {}; {}", options.parallelism,
                                         expansion.refusals.front().reason,
                                         expansion.refusals.front().remedy));
    steps.insert(steps.end(), expansion.steps.begin(), expansion.steps.end());
  }
  return steps;
}

std::variant<KeyedRequest, KeyedPlan, Error> keyed_plan(
    PlanService& plans, const Problem& problem, const DeviceProperties& device) {
  auto keyed = plans.key(problem, device);
  if (!keyed)
    return std::move(keyed).error();
  const auto verdict =
      attention::evaluate(problem, device.capability(), keyed->version);
  if (verdict.supported)
    return *std::move(keyed);
  const attention::Finding& first = verdict.refusals.front();
  return Error{
      ErrorCode::kCompileFailed,
      fmt::format("cuDNN {} does not run it: {}: {}; {}", to_string(keyed->version),
                  first.id, first.reason, first.remedy)};
}

BuildItem item_for(PlanService& plans, const Problem& problem,
                   const DeviceProperties& device) {
  BuildItem item{.named_as = "template",
                 .name = std::string(PlanService::name_of(problem)),
                 .label = to_string(problem),
                 .params = {},
                 .arch = to_string(device.capability()),
                 .device = device.name,
                 .keyed = keyed_plan(plans, problem, device)};
  for (const cache::Field& field : attention::shown_fields(problem).list())
    item.params.emplace(field.label, field.value);
  return item;
}

}  // namespace

Result<int> warm_attention(Context& context, const AttentionOptions& options) {
  Config config = context.config;
  if (!options.jobs.empty())
    config.jobs = static_cast<unsigned>(
        KILN_TRY(parse_number("--jobs", options.jobs, {1, kMostJobs})));
  if (!options.time_limit.empty())
    config.compile_timeout = KILN_TRY(parse_time_limit(options.time_limit));
  const auto problems = KILN_TRY(wanted_problems(options));
  const auto devices = KILN_TRY(plan_devices(config, options));
  const auto service = KILN_TRY(BuildService::open(
      config, {.stop = context.stop->token(), .make_root = !options.dry_run}));
  PlanService plans(*service);
  BuildReport report;
  for (const DeviceProperties& device : devices) {
    for (const Problem& problem : problems)
      report.items.push_back(item_for(plans, problem, device));
  }
  run_builds(context, *service,
             {.jobs = service->jobs().get(),
              .dry_run = options.dry_run,
              .fail_fast = options.fail_fast,
              .keep_objects = false,
              .events = nullptr,
              .plans = &plans},
             report);
  if (context.json)
    print_json(report_json(report));
  else
    print_report(context, report);
  return exit_code_of(report);
}

}  // namespace kiln::tools
