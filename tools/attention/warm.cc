// kiln attention warm: build the plans and kernels that a job will ask for, before it
// starts.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "attention/context_parallel.h"
#include "attention/evaluate.h"
#include "cudnn/library.h"
#include "ops/attention.h"
#include "ops/cudnn_tensors.h"
#include "ops/preset.h"
#include "tools/attention/command.h"
#include "tools/build_run.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using attention::Pass;
using attention::Problem;
using device::DeviceProperties;

Result<Problem> problem_of(const ops::Preset& preset, Pass pass) {
  auto problem = KILN_TRY(ops::attention_of(preset, pass));
  if (!problem)
    return wrong_attention("preset {} has no [attention]", preset.name);
  return *problem;
}

/// The problems that the flags describe: both passes if a preset or --training asks for
/// them.
Result<std::vector<Problem>> whole_problems(const AttentionOptions& options) {
  std::vector<Problem> whole;
  if (options.preset.empty()) {
    whole.push_back(KILN_TRY(read_problem(options.problem)));
    if (whole.front().training && whole.front().pass == Pass::kForward) {
      ProblemOptions backward = options.problem;
      backward.texts["pass"] = word_of(Pass::kBackward);
      whole.push_back(KILN_TRY(read_problem(backward)));
    }
    return whole;
  }
  const auto preset = KILN_TRY(from_input(ops::find_preset(options.preset)));
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    if (const std::string& only = options.problem.text("pass");
        only.empty() || only == word_of(pass))
      whole.push_back(KILN_TRY(
          read_problem_over(options.problem, KILN_TRY(problem_of(preset, pass)))));
  }
  if (whole.empty())
    KILN_TRY(named("--pass", parse_word<Pass>(options.problem.text("pass"))));
  return whole;
}

/// Those of one rank: each step of context parallelism.
Result<std::vector<Problem>> wanted_problems(const AttentionOptions& options) {
  auto whole = KILN_TRY(whole_problems(options));
  if (options.parallelism.empty())
    return whole;
  const auto parallelism = KILN_TRY(
      named("--cp", attention::parse_context_parallelism(options.parallelism)));
  std::vector<Problem> steps;
  for (const Problem& each : whole) {
    const auto expansion = attention::expand(each, parallelism);
    if (!expansion.refusals.empty())
      return wrong_attention("--cp {}: {}; {}", options.parallelism,
                             expansion.refusals.front().reason,
                             expansion.refusals.front().remedy);
    steps.insert(steps.end(), expansion.steps.begin(), expansion.steps.end());
  }
  return steps;
}

/// Lists what to build for each problem: cuDNN's plan, or Kiln's own kernels if cuDNN
/// does not run it. Decides as AttentionDecisions does, but without a device.
class WarmList {
 public:
  /// If a cuDNN is named, forced or found, but cannot be used, every item gets its
  /// error. Errors: as find_cudnn.
  [[nodiscard]] static Result<WarmList> make(Context& context, BuildService& service,
                                             PlanService& plans, bool kiln) {
    WarmList list(service, plans);
    const AttentionSetting setting = service.config().attention;
    if (kiln || setting == AttentionSetting::kKiln) {
      list.why_not_ = kiln ? "--kiln" : "KILN_ATTENTION=kiln";
      return list;
    }
    list.only_cudnn_ = setting == AttentionSetting::kCudnn;
    auto library = plans.library();
    if (library) {
      list.version_ = library->version();
      return list;
    }
    const bool is_expected = list.only_cudnn_ || service.config().cudnn;
    if (is_expected ||
        !KILN_TRY(attention::find_cudnn("", LibraryPlaces::of_process())).empty())
      list.error_ = library.error();
    else
      print_error(fmt::format(
          "{} {}; so Kiln's own kernels are built for all problems\n",
          context.err.styled("kiln:", Style::kYellow), library.error().message));
    list.why_not_ = std::move(library).error().message;
    return list;
  }

  /// Errors: kInvalidArgument, if a plan is wanted for an architecture that no
  /// published device has.
  Result<void> add(const Problem& problem, const AttentionTarget& target) {
    if (error_) {
      add_error(problem, target, *error_);
      return {};
    }
    const std::string why_not = why_not_cudnn(problem, target.capability);
    if (why_not.empty()) {
      if (!target.device)
        return no_published_device(target.capability);
      add_plan(problem, *target.device);
    } else if (only_cudnn_) {
      add_error(problem, target, {ErrorCode::kCompileFailed, why_not});
    } else {
      add_kernels(problem, target, why_not);
    }
    return {};
  }

  [[nodiscard]] BuildReport take() { return std::exchange(report_, {}); }
  [[nodiscard]] bool has_kernels() const { return !only_cudnn_; }

  /// Kiln's kernels for each plan that failed although the rules allow it: a job's
  /// calls then run those kernels. Plans that cuDNN itself refused are removed from
  /// `built`.
  [[nodiscard]] BuildReport replacements(BuildReport& built) {
    BuildReport kept = std::exchange(built, {});
    built.dry_run = kept.dry_run;
    built.driver = kept.driver;
    built.gave_up = kept.gave_up;
    built.skipped = kept.skipped;
    built.elapsed = kept.elapsed;
    for (std::size_t i = 0; i < kept.items.size(); ++i) {
      const BuildEntry& entry = kept.entries[i];
      const auto* const plan = std::get_if<KeyedPlan>(&kept.items[i].keyed);
      if (plan != nullptr && is_failure(entry.verdict)) {
        for (const Problem& each : attention::run_together(plan->problem))
          add_kernels(each, {plan->device.capability(), plan->device},
                      entry.error->message);
      }
      if (entry.verdict == BuildVerdict::kRefused)
        continue;
      built.items.push_back(std::move(kept.items[i]));
      built.entries.push_back(std::move(kept.entries[i]));
    }
    return take();
  }

 private:
  WarmList(BuildService& service, PlanService& plans)
      : service_(service), plans_(plans) {}

  /// Empty: by the rules, cuDNN runs it.
  [[nodiscard]] std::string why_not_cudnn(const Problem& problem,
                                          ComputeCapability capability) const {
    if (!version_)
      return why_not_;
    const auto refusal = attention::why_not_cudnn(problem, capability, *version_);
    return refusal ? refusal->text : std::string();
  }

  void add_error(const Problem& problem, const AttentionTarget& target, Error error) {
    BuildItem item = problem_item(problem, target);
    item.keyed = std::move(error);
    report_.items.push_back(std::move(item));
  }

  void add_plan(const Problem& problem, const DeviceProperties& device) {
    report_.items.push_back(plan_item(plans_, problem, device));
    const ops::AttentionTensors tensors{};
    add_launches(ops::launches_beside_plan({problem, tensors}),
                 {device.capability(), device}, "it goes with cuDNN's plan");
  }

  /// Adds the kernels that a call for the problem launches on `target`.
  void add_kernels(const Problem& problem, const AttentionTarget& target,
                   const std::string& why_not) {
    const ops::AttentionTensors tensors{};
    const auto launches = ops::plan(ops::AttentionCall{problem, tensors},
                                    Device{.capability = target.capability});
    if (launches)
      add_launches(*launches, target, why_not);
    else
      add_error(problem, target,
                {ErrorCode::kCompileFailed,
                 fmt::format("{}; {}", launches.error().message, why_not)});
  }

  void add_launches(const ops::Launches& launches, const AttentionTarget& target,
                    const std::string& reason) {
    for (const ops::Launch& launch : launches) {
      const std::size_t before = report_.items.size();
      add_items(service_, Request(launch.kernel, launch.parameters),
                {target.capability}, report_);
      for (std::size_t i = before; i < report_.items.size(); ++i) {
        report_.items[i].kind = "kernel";
        report_.items[i].reason = reason;
      }
    }
  }

  BuildService& service_;
  PlanService& plans_;
  std::optional<attention::CudnnVersion> version_;  // none: cuDNN is not asked
  std::string why_not_;                             // the reason, if it is not asked
  std::optional<Error> error_;                      // the error of every item
  bool only_cudnn_ = false;
  BuildReport report_;
};

}  // namespace

Result<int> warm_attention(Context& context, const AttentionOptions& options) {
  Config config = context.config;
  config.for_driver = KILN_TRY(parse_driver_option(options.driver));
  const auto problems = KILN_TRY(wanted_problems(options));
  const auto targets = KILN_TRY(attention_targets(config, options));
  const auto service = KILN_TRY(open_to_build(config, {.stop = context.stop->token(),
                                                       .make_root = !options.dry_run,
                                                       .warns_when_off = false}));
  PlanService plans(*service, context.stop->token());
  WarmList list = KILN_TRY(WarmList::make(context, *service, plans, options.kiln));
  for (const AttentionTarget& target : targets) {
    for (const Problem& problem : problems) KILN_TRY(list.add(problem, target));
  }
  BuildReport report = list.take();
  report.driver = config.for_driver;
  BuildRunOptions how{.jobs = service->jobs().get(),
                      .dry_run = options.dry_run,
                      .fail_fast = options.fail_fast,
                      .must_store = true,
                      .plans = &plans};
  if (list.has_kernels())
    how.on_refusal = "; so Kiln's own kernel is built for the problem";
  KILN_TRY(run_builds(context, *service, how, report));
  const bool has_stopped =
      report.gave_up ||
      (options.fail_fast && std::ranges::any_of(report.entries, [](const auto& entry) {
         return is_failure(entry.verdict) && entry.verdict != BuildVerdict::kRefused;
       }));
  if (list.has_kernels() && !has_stopped) {
    BuildReport more = list.replacements(report);
    KILN_TRY(run_builds(context, *service, how, more));
    report.add(std::move(more));
  }
  if (context.json)
    print_json(report_json(report));
  else
    print_report(context, report);
  return exit_code_of(report);
}

}  // namespace kiln::tools
