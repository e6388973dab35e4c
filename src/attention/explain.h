// Answers "what would run this attention problem on that device, and why" for each
// problem that context parallelism makes of it. Both the rules and cuDNN itself are
// asked, and either may refuse.

#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/context_parallel.h"
#include "attention/evaluate.h"
#include "attention/kernel_choice.h"
#include "kiln/device.h"

namespace kiln::attention {

enum class Choice : std::uint8_t { kCudnn, kKiln, kNone };

/// "cudnn", "kiln", "none".
[[nodiscard]] std::string_view to_string(Choice choice);

/// The status of a probe that crashed, hung or exceeded its memory limit: cuDNN must
/// not be used for that problem.
inline constexpr std::string_view kProbeFailed = "failed";

/// The status of a probe that ended with an error of this kind: kProbeFailed if cuDNN
/// may be the cause, else "not_run".
[[nodiscard]] std::string_view probe_status(ErrorCode code);

/// cuDNN's own answer, which may be a refusal even if the rules allow the problem.
struct Probe {
  bool ran = false;
  bool built = false;
  std::string status = "not_run";  // "built", "failed", "refused" or cuDNN's own
  std::string message;             // why not; or how the rules and cuDNN differ
};

/// Asks cuDNN for a plan of the problem.
using AskCudnn = std::function<Probe(const Problem&)>;

struct Step {
  Problem problem;
  Choice chosen = Choice::kNone;
  Verdict cudnn;
  Probe probe;
  OwnKernel kiln;
};

struct Explanation {
  /// kCudnn: cuDNN runs every step. kKiln: Kiln runs some or all steps, which cuDNN
  /// refuses.
  Choice chosen = Choice::kNone;
  Verdict cudnn;   // of all steps; each rule once
  Probe probe;     // of all steps: the first that did not build
  OwnKernel kiln;  // of all steps: the first that has none
  /// Without context parallelism, the problem itself. Empty if context parallelism
  /// refuses the problem.
  std::vector<Step> steps;
};

struct ExplainOptions {
  std::optional<ContextParallelism> parallelism{};
  /// Called for each step. Empty: only the rules answer, as for a version that is not
  /// installed.
  AskCudnn probe{};
};

/// `question.problem` has passed validate().
[[nodiscard]] Explanation explain(const RuleQuestion& question,
                                  const ExplainOptions& options);

/// As programs read it, and `kiln attention explain --json` prints it:
/// `{"chosen","cudnn","kiln","steps"}`.
[[nodiscard]] nlohmann::ordered_json to_json(const Explanation& explanation);

}  // namespace kiln::attention
