// The whole answer to "what would run this attention problem there, and why": by the
// rules and by cuDNN itself, each of which may refuse, on the problems that context
// parallelism makes of it.

#pragma once

#include <functional>
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

/// The status of a probe that crashed, hung, or ate its memory: cuDNN is not to be
/// trusted with that problem.
inline constexpr std::string_view kProbeFailed = "failed";

/// What cuDNN itself said, which may refuse as the rules may.
struct Probe {
  bool ran = false;
  bool built = false;
  std::string status = "not_run";  // "built", "refused", "failed"; of a refusal cuDNN's
  std::string message;             // why not; where it and the rules differ, that
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
  /// kCudnn: for every step. kKiln: for some, or all, since cuDNN refuses them.
  Choice chosen = Choice::kNone;
  Verdict cudnn;   // of all steps; each rule once
  Probe probe;     // of all steps: the first that did not build
  OwnKernel kiln;  // of all steps: the first that has none
  /// The problem itself without context parallelism. None where that refuses it.
  std::vector<Step> steps;
};

struct ExplainOptions {
  std::optional<ContextParallelism> parallelism{};
  /// Called for each step; empty: the rules alone answer, as for a version that is not
  /// here.
  AskCudnn probe{};
};

/// `question.problem` has passed validate().
[[nodiscard]] Explanation explain(const Question& question,
                                  const ExplainOptions& options);

}  // namespace kiln::attention
