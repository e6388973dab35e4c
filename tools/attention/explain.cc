// kiln attention explain: would cuDNN run this attention problem there, and if not, why
// and what to do.

#include "attention/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cudnn/plan_service.h"
#include "device/profile.h"
#include "tools/attention/command.h"
#include "tools/output/terminal.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using attention::CudnnVersion;
using attention::Explanation;
using attention::Finding;
using nlohmann::ordered_json;

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

// ---- Answers, for programs and for people

constexpr std::size_t kIndent = 9;  // of what is said of a finding

std::string finding_text(const Finding& finding, std::string_view word, Style style,
                         const Terminal& terminal) {
  const auto paragraph = [&](const std::string& text) {
    return terminal.fitted(std::string(kIndent, ' ') + text, kIndent);
  };
  return fmt::format("{}  {}\n{}\n{}\n",
                     terminal.styled(fmt::format("{:<7}", word), style), finding.id,
                     paragraph(finding.reason),
                     terminal.styled(paragraph("-> " + finding.remedy), Style::kDim));
}

std::string verdict_text(const attention::Verdict& verdict, const Terminal& terminal) {
  std::string text;
  for (const Finding& each : verdict.refusals) {
    const bool is_bug = each.kind == attention::RuleKind::kKnownBug;
    text += finding_text(each, is_bug ? "bug" : "refused", Style::kRed, terminal);
  }
  if (verdict.first_supported)
    text += fmt::format("{:{}}the whole problem runs from cuDNN {} on\n", "", kIndent,
                        to_string(*verdict.first_supported));
  for (const Finding& each : verdict.policies)
    text += finding_text(each, "note", Style::kYellow, terminal);
  return text;
}

std::string steps_text(const Explanation& explanation, const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  for (const attention::Step& step : explanation.steps) {
    std::vector<std::string> ids;
    for (const Finding& each : step.cudnn.refusals) ids.push_back(each.id);
    rows.push_back({std::to_string(step.problem.sq), std::to_string(step.problem.skv),
                    std::string(word_of(step.problem.mask)),
                    fmt::format("{}/{}", step.problem.heads, step.problem.kv_heads),
                    std::string(to_string(step.chosen)),
                    fmt::format("{}", fmt::join(ids, ", "))});
  }
  return format_table({{"SQ", Align::kRight},
                       {"SKV", Align::kRight},
                       {"MASK"},
                       {"HEADS"},
                       {"CHOSEN"},
                       {"REFUSED BY"}},
                      rows, terminal);
}

std::string probe_text(const attention::Probe& probe) {
  const std::string_view word = !probe.ran    ? "not run"
                                : probe.built ? "a plan was built"
                                              : "refused";
  return probe.message.empty() ? std::string(word)
                               : fmt::format("{}: {}", word, probe.message);
}

std::string kernel_text(const Explanation& explanation) {
  const attention::OwnKernel& kernel = explanation.kiln;
  if (!kernel.supported)
    return "no: " + kernel.reason;
  const bool is_chosen = explanation.chosen == attention::Choice::kKiln;
  return fmt::format("Kiln's own kernel {} it: {}", is_chosen ? "runs" : "would run",
                     kernel.reason);
}

/// The answer for one architecture and one version.
struct MatrixCell {
  ComputeCapability arch;
  CudnnVersion cudnn;
  Explanation explanation;
};

/// The rules that refuse in any cell, each once, in the order of the table.
std::vector<Finding> rules_of(const std::vector<MatrixCell>& cells) {
  std::vector<Finding> all;
  for (const MatrixCell& cell : cells) {
    for (const Finding& each : cell.explanation.cudnn.refusals) {
      if (std::ranges::find(all, each.id, &Finding::id) == all.end())
        all.push_back(each);
    }
  }
  // Remove the version, which belongs to one cell only.
  for (Finding& each : all)
    each.reason = each.reason.substr(0, each.reason.find("; found "));
  return all;
}

std::string cell_text(const MatrixCell& cell, const std::vector<Finding>& rules) {
  if (cell.explanation.cudnn.supported)
    return "yes";
  std::vector<std::ptrdiff_t> numbers;
  for (const Finding& each : cell.explanation.cudnn.refusals)
    numbers.push_back(std::ranges::find(rules, each.id, &Finding::id) - rules.begin() +
                      1);
  std::ranges::sort(numbers);
  return fmt::format("{}", fmt::join(numbers, ","));
}

std::string explanation_text(const attention::RuleQuestion& question,
                             const attention::ExplainOptions& options,
                             const Explanation& explanation, const Terminal& terminal) {
  const bool runs = explanation.cudnn.supported;
  const std::string verdict = runs ? "yes" : "no";
  std::string text = terminal.fitted(fmt::format(
      "{}: cuDNN {} on {} {} {}{}\n", verdict, to_string(question.cudnn),
      to_string(question.arch), runs ? "runs" : "does not run",
      to_string(question.problem),
      options.parallelism ? ", split by " + to_string(*options.parallelism) : ""));
  text.replace(0, verdict.size(),
               terminal.styled(verdict, runs ? Style::kGreen : Style::kRed));
  text += verdict_text(explanation.cudnn, terminal);
  text += terminal.fitted(
      fmt::format("chosen: {}\nprobe: {}\nkiln: {}\n", to_string(explanation.chosen),
                  probe_text(explanation.probe), kernel_text(explanation)));
  if (options.parallelism && !explanation.steps.empty())
    text += "\n" + steps_text(explanation, terminal);
  return text;
}

/// `{"matrix":[{"arch","cudnn","chosen","supported","rules"}],"rules":[{"id","reason"}]}`.
ordered_json matrix_json(const std::vector<MatrixCell>& cells) {
  ordered_json list = ordered_json::array();
  for (const MatrixCell& cell : cells) {
    ordered_json ids = ordered_json::array();
    for (const Finding& each : cell.explanation.cudnn.refusals) ids.push_back(each.id);
    list.push_back({{"arch", to_string(cell.arch)},
                    {"cudnn", to_string(cell.cudnn)},
                    {"chosen", to_string(cell.explanation.chosen)},
                    {"supported", cell.explanation.cudnn.supported},
                    {"rules", ids}});
  }
  ordered_json rules = ordered_json::array();
  for (const Finding& each : rules_of(cells))
    rules.push_back({{"id", each.id}, {"reason", each.reason}});
  return {{"matrix", list}, {"rules", rules}};
}

/// A row per architecture, a column per version, and a legend for the numbers.
std::string matrix_text(const attention::Problem& problem,
                        const std::vector<MatrixCell>& cells,
                        const Terminal& terminal) {
  const std::vector<Finding> rules = rules_of(cells);
  std::vector<Column> columns{{"ARCH"}};
  std::vector<std::vector<std::string>> rows;
  for (const MatrixCell& cell : cells) {
    if (cell.arch == cells.front().arch)
      columns.push_back({to_string(cell.cudnn)});
    if (rows.empty() || rows.back().front() != to_string(cell.arch))
      rows.push_back({to_string(cell.arch)});
    rows.back().push_back(cell_text(cell, rules));
  }
  std::string text =
      terminal.fitted(fmt::format("{} on cuDNN:\n", to_string(problem))) +
      format_table(columns, rows, terminal);
  if (!rules.empty())
    text += "\n";
  for (std::size_t i = 0; i < rules.size(); ++i)
    text += terminal.fitted(
        fmt::format("{:>3}  {}: {}\n", i + 1, rules[i].id, rules[i].reason), 5);
  return text;
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
