// One rule about cuDNN's fused attention, as rules/*.toml have them: data, checked when
// Kiln is built. rules/README.md is the schema.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/condition.h"
#include "kiln/result.h"

namespace kiln::attention {

enum class RuleKind : std::uint8_t {
  kSupport,          // cuDNN cannot run it
  kKnownBug,         // cuDNN builds a plan that must not be used
  kFrameworkPolicy,  // a framework does not ask cuDNN: shown, never decides
};

/// Sets one field of the problem to a value or to another field's value, or rounds it
/// up.
struct Change {
  const Field* field = nullptr;
  Operand value{};
  double multiple = 0;  // not 0: rounds up to a multiple of it
};

/// What to do about a refusal. The evaluator tries upgrades and changes, and offers
/// only those that help.
struct Remedy {
  std::optional<CudnnVersion> upgrade{};
  std::vector<Change> changes{};
  std::string text{};  // empty for an upgrade
  Condition when{};    // by default always
};

/// Refuses where `applies` holds and `needs` does not.
struct Rule {
  std::string id;
  std::string place;  // "<file>:<line>"
  RuleKind kind = RuleKind::kSupport;
  Condition applies{};
  Condition needs{};
  std::string reason;
  std::vector<Remedy> remedies;
  std::vector<std::string> sources;
};

/// "support", "known_bug", "framework_policy".
[[nodiscard]] std::string_view to_string(RuleKind kind);

/// Parses a file of rules. Errors: kInvalidArgument "<file>:<line>: <what>", for an
/// entry that is unknown, missing or repeated.
[[nodiscard]] Result<std::vector<Rule>> parse_rules(std::string_view text,
                                                    std::string_view file);

/// Errors: kInvalidArgument "<file>:<line>: <what>", where two rules have the same id.
[[nodiscard]] Result<void> check_ids(std::span<const Rule> rules);

struct RuleFile {
  std::string_view name;
  std::string_view text;
};
/// The rule files that Kiln was built with, sorted by name.
[[nodiscard]] std::span<const RuleFile> embedded_rule_files();

}  // namespace kiln::attention
