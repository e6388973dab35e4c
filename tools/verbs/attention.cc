// kiln attention: explains what runs an attention problem on a device, and builds its
// plans and kernels in advance.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tools/attention/command.h"
#include "tools/open_cache.h"
#include "tools/verbs.h"
#include "tools/why_answer.h"
#include "util/nearest.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

/// why: explains a missing plan by the nearest entry in the cache.
Result<int> explain_missing_plan(Context& context, const AttentionOptions& options) {
  const auto problem = KILN_TRY(read_problem(options.problem));
  const auto devices = KILN_TRY(plan_devices(context.config, options));
  if (devices.size() != 1)
    return wrong_attention(
        "why explains one device at a time, and there are several: --profile "
        "FILE|NAME");
  const auto service = KILN_TRY(open_to_look(context, context.config));
  PlanService plans(*service, context.stop->token());
  const KeyedPlan keyed = KILN_TRY(plans.key(problem, devices.front()));
  const auto note = fmt::format("cudnn-{} ({}), for {}", to_string(keyed.version),
                                keyed.cudnn.native(), keyed.device.name);
  print_answer(KILN_TRY(MissExplainer(service->cache())
                            .explain(keyed.key, PlanService::compared(keyed), note)),
               context.json, context.out);
  return kAllDone;
}

struct Action {
  std::string_view name;
  Result<int> (*run)(Context& context, const AttentionOptions& options);
  std::chrono::seconds patience;  // after a signal
};
constexpr std::array<Action, 3> kActions{
    {{"explain", explain_attention, kLookerPatience},
     {"warm", warm_attention, kDoerPatience},
     {"why", explain_missing_plan, kLookerPatience}}};

/// The flags that are for one action alone.
struct Owned {
  std::string_view action;
  std::vector<std::string> flags;
};
std::vector<Owned> owned_flags() {
  return {{"explain", {"--cudnn", "--matrix"}},
          {"warm",
           {"--preset", "--jobs", "--timeout", "--dry-run", "--fail-fast", "--kiln"}}};
}

/// A flag of another action is wrong usage, not ignored.
Result<void> check_flags(const OptionSet& cli, const AttentionOptions& options) {
  for (const auto& [action, flags] : owned_flags()) {
    for (const std::string& flag : flags) {
      if (action != options.action && cli.is_given(flag))
        return wrong_attention("{} is for `attention {}`", flag, action);
    }
  }
  if (options.action == "why" && cli.is_given("--cp"))
    return wrong_attention("why explains one plan: name a step of --cp as the problem");
  return {};
}

Result<int> run(Context& context, const OptionSet& cli,
                const AttentionOptions& options) {
  std::vector<std::string> names;
  for (const Action& action : kActions) {
    if (action.name == options.action) {
      KILN_TRY(check_flags(cli, options));
      context.stop->set_patience(action.patience);
      return action.run(context, options);
    }
    names.emplace_back(action.name);
  }
  if (options.action.empty())
    return wrong_attention("name an action: kiln attention explain, warm or why");
  return wrong_attention("there is no `attention {}`{}", options.action,
                         did_you_mean(options.action, names));
}

}  // namespace

std::vector<std::string> foreign_attention_options(
    const std::vector<std::string>& words) {
  std::vector<std::string> foreign;
  for (const Action& action : kActions) {
    if (std::ranges::find(words, action.name) == words.end())
      continue;
    for (const auto& [owner, flags] : owned_flags()) {
      if (owner != action.name)
        foreign.insert(foreign.end(), flags.begin(), flags.end());
    }
    if (action.name == "why")
      foreign.emplace_back("--cp");
    return foreign;
  }
  return foreign;
}

Run add_attention(OptionSet& cli) {
  auto options = std::make_shared<AttentionOptions>();
  cli.argument("ACTION", options->action,
               "explain: whether cuDNN runs this problem on that device; if not, the "
               "reason, the remedy, and the kernel of Kiln that runs the problem. "
               "warm: build the kernels that a job will ask for: cuDNN's plans, and "
               "Kiln's kernels where cuDNN refuses. why: for a plan that is not in the "
               "cache, the nearest plan in the cache, and the differences");
  cli.option("--arch", options->devices.lists, "LIST",
             "Architecture: 9.0, sm_90 or native; with --matrix or warm a list. A "
             "plan is for a device: warm takes the published ones that have it");
  add_profile_option(cli, options->devices);
  cli.option("--driver", options->driver, "VERSION",
             "CUDA version of that device's driver, such as 13.0, to which a plan is "
             "bound (default: the profile's)");
  cli.option("--cudnn", options->cudnn, "VERSION",
             "explain: version of cuDNN, such as 9.5.0, by the rules only; or "
             "installed: the installed cuDNN is asked as well");
  cli.option("--preset", options->preset, "NAME|FILE",
             "warm: both passes of a model's attention; a flag of the problem changes "
             "the field with its name");
  cli.group("Problem");
  add_problem_options(cli, options->problem);
  cli.option("--cp", options->parallelism, "MODE:RANKS",
             "Context parallelism, MODE:RANKS: p2p, a2a, all_gather or a2a+p2p; the "
             "problem is then of all ranks, and its steps are decided on");
  cli.group(kBuildGroup);
  cli.flag("--kiln", options->kiln,
           "warm: Kiln's own kernels for all problems, as a job with "
           "KILN_ATTENTION=kiln asks for");
  cli.setting("--jobs", "N", "jobs", "warm: plans at a time");
  cli.setting("--timeout", "DURATION", "compile_timeout",
              "warm: time limit of one plan: 90, which is seconds, or 5m");
  cli.flag("--dry-run", options->dry_run,
           "warm: say how many plans and kernels would be built; build nothing");
  cli.flag("--fail-fast", options->fail_fast, "warm: stop at the first failure");
  cli.group(kOutputGroup);
  cli.flag("--matrix", options->matrix,
           "explain: a table over architectures and versions of cuDNN");
  cli.footer(
      "Examples:\n"
      "  kiln attention explain --arch 9.0 --cudnn 9.1.0 --pass bwd --dtype bf16 \\\n"
      "    --batch 2 --heads 16 --sq 1024 --skv 1024 --dqk 192 --dv 128 --mask causal\n"
      "  kiln attention warm --profile h100-sxm --preset llama-3-8b --cp all_gather:2\n"
      "  kiln attention warm --arch 7.5,8.6 --preset llama-3-8b --kiln\n"
      "\n"
      "Exit status: of explain 0 with any answer; of warm 0 when all builds are in\n"
      "the cache, 1 when a build failed or neither cuDNN nor Kiln runs a problem.\n");
  return [options, cli](Context& context) { return run(context, cli, *options); };
}

}  // namespace kiln::tools
