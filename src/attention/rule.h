// One rule about cuDNN's fused attention, as rules/*.toml have them: data, checked when
// Kiln is built. rules/README.md is the schema.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/condition.h"
#include "kiln/result.h"

namespace kiln::attention {

enum class RuleKind : std::uint8_t {
  kSupport,          // cuDNN cannot
  kKnownBug,         // cuDNN builds a plan, and it must not be used
  kFrameworkPolicy,  // a framework does not ask cuDNN: shown, never decides
};

/// One field of the problem set to a value or to another field's, or rounded up.
struct Change {
  const Field* field = nullptr;
  Operand value{};
  double multiple = 0;  // not 0: rounded up to that
};

/// What to do about a refusal. An upgrade and a change are offered only where they
/// help, which the evaluator tries.
struct Remedy {
  std::optional<CudnnVersion> upgrade{};
  std::vector<Change> changes{};
  std::string text{};  // of all but an upgrade
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

/// A file of rules. Errors: kInvalidArgument "<file>:<line>: <what>", for whatever is
/// unknown, missing or there twice.
[[nodiscard]] Result<std::vector<Rule>> parse_rules(std::string_view text,
                                                    std::string_view file);

/// Errors: kInvalidArgument "<file>:<line>: <what>", where two rules have the same id.
[[nodiscard]] Result<void> check_ids(std::span<const Rule> rules);

struct RuleFile {
  std::string_view name;
  std::string_view text;
};
/// As they were when Kiln was built, in order of their names.
[[nodiscard]] std::span<const RuleFile> embedded_rule_files();

}  // namespace kiln::attention
