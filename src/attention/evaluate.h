// Can cuDNN's fused attention run this problem on that device, by the rules? Every rule
// that refuses is told, each with what helps there: remedies are tried before they are
// offered.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/condition.h"
#include "attention/rule.h"

namespace kiln::attention {

/// What one rule says of a question.
struct Finding {
  std::string id;
  RuleKind kind = RuleKind::kSupport;
  std::string reason;  // with the version found, where the rule is about versions
  std::string remedy;  // never empty
};

struct Verdict {
  bool supported = false;         // no refusal; by the rules alone
  std::vector<Finding> refusals;  // of kinds support and known_bug
  std::vector<Finding> policies;  // of kind framework_policy: they decide nothing
  /// The lowest later version that nothing refuses; none where it is supported.
  std::optional<CudnnVersion> first_supported;
};

/// Rules and the versions that they speak of. Thread safety: immutable.
class RuleSet {
 public:
  explicit RuleSet(std::vector<Rule> rules);

  [[nodiscard]] std::span<const Rule> rules() const { return rules_; }
  /// Those that rules compare with or upgrade to, ascending: between two of them little
  /// changes but what holds of one version alone.
  [[nodiscard]] std::span<const CudnnVersion> versions() const { return versions_; }
  [[nodiscard]] bool is_supported(const Question& question) const;
  [[nodiscard]] Verdict evaluate(const Question& question) const;

 private:
  [[nodiscard]] std::vector<const Rule*> refusing(const Question& question) const;
  /// Would `changed` be refused by neither `rule` nor anything new?
  [[nodiscard]] bool helps(const Rule& rule, const std::vector<const Rule*>& before,
                           const Question& changed) const;
  [[nodiscard]] std::optional<std::string> text_of(
      const Remedy& remedy, const Rule& rule, const std::vector<const Rule*>& before,
      const Question& question) const;
  [[nodiscard]] Finding finding(const Rule& rule,
                                const std::vector<const Rule*>& before,
                                const Question& question) const;

  std::vector<Rule> rules_;
  std::vector<CudnnVersion> versions_;  // ascending, each once
};

/// Those that Kiln was built with.
[[nodiscard]] const RuleSet& built_in_rules();

/// By the built-in rules.
[[nodiscard]] Verdict evaluate(const Problem& problem, ComputeCapability arch,
                               CudnnVersion cudnn);

/// "cuDNN 9.5.0 does not run it: <rule>: <reason>; <remedy>".
[[nodiscard]] std::string to_string(const Finding& finding, CudnnVersion cudnn);

/// Where sequences of a packed problem may begin beyond what offsets of 32 bits reach,
/// whatever their lengths are: Kiln builds cuDNN's plans for such offsets.
[[nodiscard]] std::optional<Finding> find_wide_offsets(const Problem& problem);

/// What cuDNN must be able to run if it is to run `problem`. With dropout both passes,
/// since two backends drop other probabilities for the same seed: first the forward
/// pass, then the backward one with the gradient of its bias, if it has one, and each
/// as the most that a caller may ask of it alone, deterministic and captured. Else
/// itself.
[[nodiscard]] std::vector<Problem> run_together(const Problem& problem);

struct CudnnRefusal {
  std::string id;    // of the rule: what is alike in all such refusals
  std::string text;  // a sentence with the remedy
  friend bool operator==(const CudnnRefusal&, const CudnnRefusal&) = default;
};

/// Why Kiln does not let cuDNN run a problem, before cuDNN itself is asked: the first
/// reason, of any that run_together() names. nullopt: cuDNN may be asked.
[[nodiscard]] std::optional<CudnnRefusal> why_not_cudnn(const Problem& problem,
                                                        ComputeCapability capability,
                                                        CudnnVersion cudnn);

}  // namespace kiln::attention
