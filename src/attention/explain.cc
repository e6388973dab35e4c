#include "attention/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "util/words.h"

namespace kiln::attention {
namespace {

using nlohmann::ordered_json;

void add_new(std::vector<Finding>& all, const std::vector<Finding>& more) {
  for (const Finding& each : more) {
    if (std::ranges::find(all, each.id, &Finding::id) == all.end())
      all.push_back(each);
  }
}

/// Training runs the backward pass next, so its refusals are shown in advance.
void show_backward(const RuleQuestion& question, Verdict& verdict) {
  RuleQuestion backward = question;
  backward.problem.pass = Pass::kBackward;
  for (Finding each : built_in_rules().evaluate(backward).refusals) {
    const auto same = std::ranges::find(verdict.refusals, each.id, &Finding::id);
    if (same != verdict.refusals.end())
      continue;
    each.kind = RuleKind::kFrameworkPolicy;
    each.reason = "the backward pass of this training is refused: " + each.reason;
    verdict.policies.push_back(std::move(each));
  }
}

Probe not_probed() {
  return {.message = "a version by its number is answered by the rules alone"};
}

/// Reports where the rules and cuDNN disagree, whichever of them refuses.
void compare(const RuleQuestion& question, Step& step) {
  Probe& probe = step.probe;
  if (probe.status == kProbeFailed) {
    step.cudnn.supported = false;
    step.cudnn.refusals.push_back(
        {.id = "probe.failed",
         .kind = RuleKind::kKnownBug,
         .reason = fmt::format("cuDNN {} did not come to an end with it: {}",
                               to_string(question.cudnn), probe.message),
         .remedy = "use another kernel or another version of cuDNN; or raise the limit "
                   "that struck"});
    return;
  }
  if (!probe.ran || probe.built == step.cudnn.supported)
    return;
  if (probe.built) {
    probe.message = fmt::format(
        "cuDNN {} builds a plan that the rules refuse; the rules decide, since a plan "
        "that was built need not be right",
        to_string(question.cudnn));
    return;
  }
  step.cudnn.supported = false;
  step.cudnn.refusals.push_back(
      {.id = "probe.refused",
       .kind = RuleKind::kSupport,
       .reason =
           fmt::format("cuDNN {} itself refuses a problem that the rules allow: {}",
                       to_string(question.cudnn), probe.message),
       .remedy = "use another kernel, or another version of cuDNN"});
}

/// With dropout one backend must run both passes: a refusal of the other pass is shown
/// and decides. False: the rules refuse the other pass.
bool check_other_pass(const RuleQuestion& question, Verdict& verdict) {
  for (const Problem& problem : run_together(question.problem)) {
    if (problem.pass == question.problem.pass)
      continue;
    const Verdict other =
        built_in_rules().evaluate({problem, question.arch, question.cudnn});
    if (other.supported)
      continue;
    Finding first = other.refusals.front();
    first.kind = RuleKind::kFrameworkPolicy;
    first.reason = fmt::format(
        "the {} pass drops the same probabilities, so the same "
        "backend must run it, and it is refused: {}",
        word_of(problem.pass), first.reason);
    std::erase_if(verdict.policies,
                  [&](const Finding& each) { return each.id == first.id; });
    verdict.policies.push_back(std::move(first));
    return false;
  }
  return true;
}

Step decide(const RuleQuestion& question, const AskCudnn& ask) {
  Step step{.problem = question.problem,
            .cudnn = built_in_rules().evaluate(question),
            .probe = not_probed(),
            .kiln = own_kernel(question.problem, question.arch)};
  if (ask) {
    step.probe = ask(question.problem);
    compare(question, step);
  }
  if (question.problem.training && question.problem.pass == Pass::kForward)
    show_backward(question, step.cudnn);
  bool is_asked = check_other_pass(question, step.cudnn);
  if (auto wide = find_wide_offsets(question.problem)) {
    step.cudnn.policies.push_back(*std::move(wide));
    is_asked = false;
  }
  if (step.cudnn.supported && is_asked)
    step.chosen = Choice::kCudnn;
  else if (step.kiln.supported)
    step.chosen = Choice::kKiln;
  return step;
}

/// kNone if there is no step, or a step has none; kCudnn if cuDNN runs all steps.
Choice chosen_for(const std::vector<Step>& steps) {
  const auto is = [](Choice choice) {
    return [choice](const Step& step) { return step.chosen == choice; };
  };
  if (steps.empty() || std::ranges::any_of(steps, is(Choice::kNone)))
    return Choice::kNone;
  return std::ranges::all_of(steps, is(Choice::kCudnn)) ? Choice::kCudnn
                                                        : Choice::kKiln;
}

/// One answer for all steps: the first step without a kernel gives the reason.
OwnKernel kernel_for(const Explanation& explanation) {
  if (explanation.steps.empty())
    return {false,
            "there is no step to run: " + explanation.cudnn.refusals.at(0).reason};
  const auto without = std::ranges::find_if(
      explanation.steps, [](const Step& step) { return !step.kiln.supported; });
  return without == explanation.steps.end() ? explanation.steps.front().kiln
                                            : without->kiln;
}

/// One probe for all steps: the first step that did not build gives the reason.
Probe probe_of(const std::vector<Step>& steps) {
  if (steps.empty())
    return {.message = "there is no step to ask cuDNN about"};
  const auto worst = std::ranges::find_if(
      steps, [](const Step& step) { return !step.probe.ran || !step.probe.built; });
  return worst == steps.end() ? steps.front().probe : worst->probe;
}

std::optional<CudnnVersion> first_supported(const std::vector<Step>& steps,
                                            const RuleQuestion& question) {
  std::optional<CudnnVersion> first;
  for (const Step& step : steps) {
    if (step.cudnn.supported)
      continue;
    if (!step.cudnn.first_supported)
      return std::nullopt;
    first = std::max(first.value_or(question.cudnn), *step.cudnn.first_supported);
  }
  const auto runs_there = [&](const Step& step) {
    return built_in_rules().is_supported({step.problem, question.arch, *first});
  };
  // The version that one step needs may refuse another step.
  if (first && !std::ranges::all_of(steps, runs_there))
    return std::nullopt;
  return first;
}

bool runs_with(const RuleQuestion& question, const ContextParallelism& parallelism) {
  const Expansion expansion = expand(question.problem, parallelism);
  return expansion.refusals.empty() &&
         std::ranges::all_of(expansion.steps, [&](const Problem& problem) {
           return built_in_rules().is_supported(
               {problem, question.arch, question.cudnn});
         });
}

/// Offers other ways to split the problem, if cuDNN runs them.
void offer_other_modes(const RuleQuestion& question,
                       const ContextParallelism& parallelism,
                       std::vector<Finding>& refusals) {
  const std::int64_t ranks = parallelism.p2p_ranks * parallelism.a2a_ranks;
  std::vector<std::string> others;
  for (const auto& other : {ContextParallelism{ContextMode::kP2p, ranks, 1},
                            ContextParallelism{ContextMode::kA2a, 1, ranks},
                            ContextParallelism{ContextMode::kAllGather, ranks, 1}}) {
    if (other.mode != parallelism.mode && runs_with(question, other))
      others.push_back(to_string(other));
  }
  if (others.empty())
    return;
  for (Finding& each : refusals)
    each.remedy += fmt::format("; or split by {}, which cuDNN {} runs",
                               fmt::join(others, " or "), to_string(question.cudnn));
}

ordered_json findings_json(const std::vector<Finding>& findings) {
  ordered_json list = ordered_json::array();
  for (const auto& [id, kind, reason, remedy] :
       findings)  // rules and policies are two lists
    list.push_back({{"id", id}, {"reason", reason}, {"remedy", remedy}});
  return list;
}

ordered_json cudnn_json(const Verdict& verdict, const Probe& probe) {
  const auto& [supported, refusals, policies, first_supported] = verdict;
  const auto& [ran, built, status, message] = probe;
  return {{"supported", supported},
          {"rules", findings_json(refusals)},
          {"policies", findings_json(policies)},
          {"probe",
           {{"ran", ran}, {"built", built}, {"status", status}, {"message", message}}}};
}

ordered_json kiln_json(const OwnKernel& kernel) {
  const auto& [supported, reason] = kernel;
  return {{"supported", supported}, {"reason", reason}};
}

}  // namespace

std::string_view to_string(Choice choice) {
  return word_of(choice, {"cudnn", "kiln", "none"});
}

std::string_view probe_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kWorkerCrashed:
    case ErrorCode::kTimeout:
    case ErrorCode::kResourceLimit:
      return kProbeFailed;
    default:
      return "not_run";
  }
}

Explanation explain(const RuleQuestion& question, const ExplainOptions& options) {
  Explanation explanation;
  Expansion expansion{.steps = {question.problem}, .refusals = {}};
  if (options.parallelism)
    expansion = expand(question.problem, *options.parallelism);
  explanation.cudnn.refusals = expansion.refusals;
  for (const Problem& problem : expansion.steps) {
    Step step = decide({problem, question.arch, question.cudnn}, options.probe);
    add_new(explanation.cudnn.refusals, step.cudnn.refusals);
    add_new(explanation.cudnn.policies, step.cudnn.policies);
    explanation.steps.push_back(std::move(step));
  }
  explanation.probe = probe_of(explanation.steps);
  explanation.kiln = kernel_for(explanation);
  explanation.chosen = chosen_for(explanation.steps);
  explanation.cudnn.supported = explanation.cudnn.refusals.empty();
  if (explanation.cudnn.supported)
    return explanation;
  explanation.cudnn.first_supported = first_supported(explanation.steps, question);
  if (options.parallelism)
    offer_other_modes(question, *options.parallelism, explanation.cudnn.refusals);
  return explanation;
}

ordered_json to_json(const Explanation& explanation) {
  ordered_json steps = ordered_json::array();
  for (const auto& [problem, chosen, cudnn, probe, kiln] : explanation.steps) {
    steps.push_back({{"sq", problem.sq},
                     {"skv", problem.skv},
                     {"mask", word_of(problem.mask)},
                     {"heads", problem.heads},
                     {"chosen", to_string(chosen)},
                     {"cudnn", cudnn_json(cudnn, probe)},
                     {"kiln", kiln_json(kiln)}});
  }
  const auto& [chosen, cudnn, probe, kiln, of_steps] = explanation;
  return {{"chosen", to_string(chosen)},
          {"cudnn", cudnn_json(cudnn, probe)},
          {"kiln", kiln_json(kiln)},
          {"steps", steps}};
}

}  // namespace kiln::attention
