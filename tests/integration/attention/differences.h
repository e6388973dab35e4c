// differences.toml: where the rules and cuDNN are known to differ, and why. What is not
// in it is a mistake of one of them.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "attention/condition.h"
#include "kiln/result.h"

namespace kiln::test {

/// What was asked, and what both said.
struct Probed {
  attention::RuleQuestion question;
  std::vector<std::string> rules;  // that refuse it; none: it is allowed
  bool is_built = false;
  std::string message;  // cuDNN's and the frontend's, where it is not built
};

[[nodiscard]] inline bool differ(const Probed& probed) {
  return probed.is_built != probed.rules.empty();
}

struct Difference {
  std::string rule;     // that denies what cuDNN builds; or
  std::string message;  // a part of cuDNN's words where it refuses what is allowed
  std::vector<attention::Condition> applies;
  std::vector<std::string> examples;  // "9.0 bwd d=192/160": architecture and problem
  std::string reason;

  /// Of a problem that several rules deny each needs a difference of its own.
  [[nodiscard]] bool explains(const Probed& probed, const std::string& refusing) const;
};

struct Differences {
  attention::CudnnVersion cudnn;  // that they were found with
  std::vector<Difference> list;
};
[[nodiscard]] Result<Differences> read_differences(const std::string& file);

/// The differences that together explain it; none where something stays unexplained.
[[nodiscard]] std::vector<const Difference*> explanation_of(
    std::span<const Difference> differences, const Probed& probed);

}  // namespace kiln::test
