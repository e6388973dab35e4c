#include "tools/attention/output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kiln::tools {
namespace {

using attention::Explanation;
using attention::Finding;
using nlohmann::ordered_json;

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

}  // namespace

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

}  // namespace kiln::tools
