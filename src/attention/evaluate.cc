#include "attention/evaluate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <utility>

namespace kiln::attention {
namespace {

bool refuses(const Rule& rule, const RuleQuestion& question) {
  return holds(rule.applies, question) && !holds(rule.needs, question);
}

FieldValue new_value(const Change& change, const RuleQuestion& question) {
  FieldValue value = value_of(change.value, question);
  if (change.multiple != 0)
    value = std::ceil(std::get<double>(value) / change.multiple) * change.multiple;
  return value;
}

/// The question with all changes applied at once; nullopt if the result is not a valid
/// problem.
std::optional<RuleQuestion> changed(const RuleQuestion& question,
                                    const std::vector<Change>& changes) {
  RuleQuestion now = question;
  for (const Change& change : changes) {
    if (!change.field->write(now.problem, new_value(change, question)))
      return std::nullopt;
  }
  set_strides(now.problem);
  if (!validate(now.problem))
    return std::nullopt;
  return now;
}

/// The lowest version that Kiln asks and with which no rule refuses the problem.
std::optional<CudnnVersion> first_that_runs(const Problem& problem,
                                            ComputeCapability arch) {
  const RuleSet& rules = built_in_rules();
  const std::vector<Problem> problems = run_together(problem);
  const auto runs = [&](CudnnVersion version) {
    return version >= kFirstCudnn &&
           std::ranges::all_of(problems, [&](const Problem& each) {
             return rules.is_supported({each, arch, version});
           });
  };
  if (runs(kFirstCudnn))
    return kFirstCudnn;
  const auto found = std::ranges::find_if(rules.versions(), runs);
  return found == rules.versions().end() ? std::nullopt : std::optional(*found);
}

/// Why a version before kFirstCudnn is not asked, with the one that helps.
std::string too_old(CudnnVersion found, const Problem& problem,
                    ComputeCapability arch) {
  const auto later = first_that_runs(problem, arch);
  return fmt::format(
      "cuDNN {} is not asked: Kiln builds plans with cuDNN >= {}; {}", to_string(found),
      to_string(kFirstCudnn),
      later ? fmt::format("upgrade cuDNN to {} or later", to_string(*later))
            : std::string("and no known later version runs it"));
}

}  // namespace

RuleSet::RuleSet(std::vector<Rule> rules) : rules_(std::move(rules)) {
  for (const Rule& rule : rules_) {
    collect_versions(rule.applies, versions_);
    collect_versions(rule.needs, versions_);
    for (const Remedy& remedy : rule.remedies) {
      if (remedy.upgrade)
        versions_.push_back(*remedy.upgrade);
    }
  }
  std::ranges::sort(versions_);
  versions_.erase(std::unique(versions_.begin(), versions_.end()), versions_.end());
}

bool RuleSet::is_supported(const RuleQuestion& question) const {
  return refusing(question).empty();
}

std::vector<const Rule*> RuleSet::refusing(const RuleQuestion& question) const {
  std::vector<const Rule*> found;
  for (const Rule& rule : rules_) {
    if (rule.kind != RuleKind::kFrameworkPolicy && refuses(rule, question))
      found.push_back(&rule);
  }
  return found;
}

bool RuleSet::helps(const Rule& rule, const std::vector<const Rule*>& before,
                    const RuleQuestion& changed) const {
  return !refuses(rule, changed) &&
         std::ranges::all_of(refusing(changed), [&](const Rule* each) {
           return std::ranges::find(before, each) != before.end();
         });
}

std::optional<std::string> RuleSet::text_of(const Remedy& remedy, const Rule& rule,
                                            const std::vector<const Rule*>& before,
                                            const RuleQuestion& question) const {
  if (!holds(remedy.when, question))
    return std::nullopt;
  if (remedy.upgrade) {
    // The version that the rule names may have a bug of its own for this problem.
    for (const CudnnVersion version : versions_) {
      if (version < *remedy.upgrade || version <= question.cudnn)
        continue;
      RuleQuestion later = question;
      later.cudnn = version;
      if (helps(rule, before, later))
        return fmt::format("upgrade cuDNN to {} or later", to_string(version));
    }
    return std::nullopt;
  }
  if (!remedy.changes.empty()) {
    const auto now = changed(question, remedy.changes);
    if (!now || !helps(rule, before, *now))
      return std::nullopt;
  }
  return remedy.text;
}

Finding RuleSet::finding(const Rule& rule, const std::vector<const Rule*>& before,
                         const RuleQuestion& question) const {
  Finding found{.id = rule.id, .kind = rule.kind, .reason = rule.reason, .remedy = ""};
  if (compares_cudnn(rule.needs))
    found.reason += fmt::format("; found {}", to_string(question.cudnn));
  std::vector<std::string> texts;
  for (const Remedy& remedy : rule.remedies) {
    if (auto text = text_of(remedy, rule, before, question))
      texts.push_back(*std::move(text));
  }
  if (texts.empty())
    texts.emplace_back("use another attention kernel");
  found.remedy = fmt::format("{}", fmt::join(texts, "; or "));
  return found;
}

Verdict RuleSet::evaluate(const RuleQuestion& question) const {
  Verdict verdict;
  const std::vector<const Rule*> refused = refusing(question);
  for (const Rule* const rule : refused)
    verdict.refusals.push_back(finding(*rule, refused, question));
  for (const Rule& rule : rules_) {
    if (rule.kind == RuleKind::kFrameworkPolicy && refuses(rule, question))
      verdict.policies.push_back(finding(rule, refused, question));
  }
  verdict.supported = refused.empty();
  if (verdict.supported)
    return verdict;
  const auto later = std::ranges::find_if(versions_, [&](CudnnVersion version) {
    return version > question.cudnn &&
           is_supported({question.problem, question.arch, version});
  });
  if (later != versions_.end())
    verdict.first_supported = *later;
  return verdict;
}

const RuleSet& built_in_rules() {
  static const RuleSet instance = [] {
    std::vector<Rule> all;
    for (const RuleFile& file : embedded_rule_files()) {
      auto rules = parse_rules(file.text, file.name);
      if (!rules)
        std::abort();  // impossible: the build has parsed them
      std::ranges::move(*rules, std::back_inserter(all));
    }
    return RuleSet(std::move(all));
  }();
  return instance;
}

Verdict evaluate(const Problem& problem, ComputeCapability arch, CudnnVersion cudnn) {
  return built_in_rules().evaluate({problem, arch, cudnn});
}

std::string to_string(const Finding& finding, CudnnVersion cudnn) {
  return fmt::format("cuDNN {} does not run it: {}: {}; {}", to_string(cudnn),
                     finding.id, finding.reason, finding.remedy);
}

std::optional<Finding> find_wide_offsets(const Problem& problem) {
  if (problem.layout != Layout::kThd)
    return std::nullopt;
  constexpr double kMost = std::numeric_limits<std::int32_t>::max();
  const auto fits = [&](std::int64_t length, const Strides& strides) {
    return static_cast<double>(problem.batch) * static_cast<double>(length) *
               static_cast<double>(strides.sequence) <=
           kMost;
  };
  if (fits(problem.sq, problem.q) && fits(problem.skv, problem.k) &&
      fits(problem.skv, problem.v) && fits(problem.sq, problem.o))
    return std::nullopt;
  return Finding{
      .id = "offsets.32_bits",
      .kind = RuleKind::kFrameworkPolicy,
      .reason =
          "Kiln's plans of cuDNN have offsets of 32 bits, and packed sequences "
          "of these lengths may begin beyond",
      .remedy = "split the batch"};
}

std::vector<Problem> run_together(const Problem& problem) {
  if (!(problem.dropout > 0))
    return {problem};
  Problem forward = problem;
  forward.pass = Pass::kForward;
  forward.training = forward.stats = true;
  forward.bias_gradient = false;
  forward.deterministic = forward.capture = true;
  Problem backward = forward;
  backward.pass = Pass::kBackward;
  backward.bias_gradient = may_have_bias_gradient(problem);
  return {forward, backward};
}

std::optional<CudnnRefusal> why_not_cudnn(const Problem& problem,
                                          ComputeCapability capability,
                                          CudnnVersion cudnn) {
  if (cudnn < kFirstCudnn)  // the version that a rule asks for may be too old, too
    return CudnnRefusal{"cudnn.version", too_old(cudnn, problem, capability)};
  if (const auto found = find_wide_offsets(problem))
    return CudnnRefusal{found->id, to_string(*found, cudnn)};
  for (const Problem& each : run_together(problem)) {
    const Verdict verdict = evaluate(each, capability, cudnn);
    if (verdict.supported)
      continue;
    const Finding& first = verdict.refusals.front();
    const bool is_other = each.pass != problem.pass;
    return CudnnRefusal{
        first.id,
        fmt::format(
            "{}{}", to_string(first, cudnn),
            is_other ? fmt::format(
                           " (of the {} pass, which must drop the same probabilities)",
                           word_of(each.pass))
                     : std::string())};
  }
  return std::nullopt;
}

}  // namespace kiln::attention
