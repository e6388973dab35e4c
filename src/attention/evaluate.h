// Evaluates the rules: can cuDNN's fused attention run this problem on that device?
// Reports every rule that refuses, with its remedies. A remedy is tried before it is
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
  /// The lowest later version that no rule refuses; nullopt if there is none, or if
  /// this version is supported.
  std::optional<CudnnVersion> first_supported;
};

/// Rules, and the versions that they mention. Thread safety: immutable.
class RuleSet {
 public:
  explicit RuleSet(std::vector<Rule> rules);

  [[nodiscard]] std::span<const Rule> rules() const { return rules_; }
  /// The versions that rules compare with or upgrade to, ascending. Strictly between
  /// two neighbours, support does not change.
  [[nodiscard]] std::span<const CudnnVersion> versions() const { return versions_; }
  [[nodiscard]] bool is_supported(const RuleQuestion& question) const;
  [[nodiscard]] Verdict evaluate(const RuleQuestion& question) const;

 private:
  [[nodiscard]] std::vector<const Rule*> refusing(const RuleQuestion& question) const;
  /// Whether `changed` is refused neither by `rule` nor by any rule that is not in
  /// `before`.
  [[nodiscard]] bool helps(const Rule& rule, const std::vector<const Rule*>& before,
                           const RuleQuestion& changed) const;
  [[nodiscard]] std::optional<std::string> text_of(
      const Remedy& remedy, const Rule& rule, const std::vector<const Rule*>& before,
      const RuleQuestion& question) const;
  [[nodiscard]] Finding finding(const Rule& rule,
                                const std::vector<const Rule*>& before,
                                const RuleQuestion& question) const;

  std::vector<Rule> rules_;
  std::vector<CudnnVersion> versions_;  // ascending, each once
};

/// The rules that Kiln was built with.
[[nodiscard]] const RuleSet& built_in_rules();

/// Evaluates the built-in rules.
[[nodiscard]] Verdict evaluate(const Problem& problem, ComputeCapability arch,
                               CudnnVersion cudnn);

/// "cuDNN 9.5.0 does not run it: <rule>: <reason>; <remedy>".
[[nodiscard]] std::string to_string(const Finding& finding, CudnnVersion cudnn);

/// A finding if packed sequences of full length could begin beyond the reach of 32-bit
/// offsets, with which Kiln builds cuDNN's plans.
[[nodiscard]] std::optional<Finding> find_wide_offsets(const Problem& problem);

/// The problems that cuDNN must be able to run if it is to run `problem`. Without
/// dropout: `problem` itself. With dropout: both passes, because two backends drop
/// different probabilities for the same seed. The forward pass comes first, then the
/// backward pass, with the gradient of its bias if it has one. Each has the most
/// demanding options that a caller may set for it alone: deterministic and captured.
[[nodiscard]] std::vector<Problem> run_together(const Problem& problem);

/// The first version that Kiln asks: it builds for a device described by its properties
/// alone.
inline constexpr CudnnVersion kFirstCudnn{9, 8, 0};

struct CudnnRefusal {
  std::string id;    // of the rule; equal for all refusals of one kind
  std::string text;  // a sentence with the remedy
  friend bool operator==(const CudnnRefusal&, const CudnnRefusal&) = default;
};

/// Why Kiln does not ask cuDNN to run a problem: it is too old, or the first reason
/// found for the problems of run_together(). nullopt: cuDNN may be asked.
[[nodiscard]] std::optional<CudnnRefusal> why_not_cudnn(const Problem& problem,
                                                        ComputeCapability capability,
                                                        CudnnVersion cudnn);

}  // namespace kiln::attention
