// The whole answer to "what would run this attention problem there, and why": by the
// rules, on the problems that context parallelism makes of it.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/context_parallel.h"
#include "attention/evaluate.h"

namespace kiln::attention {

enum class Choice : std::uint8_t { kCudnn, kKiln, kNone };

/// "cudnn", "kiln", "none".
[[nodiscard]] std::string_view to_string(Choice choice);

/// Whether cuDNN itself was asked, which may refuse as the rules may.
struct Probe {
  bool ran = false;
  bool built = false;
  std::string status;   // "not_run"
  std::string message;  // why not
};

/// Kiln's own kernel for the problem.
struct OwnKernel {
  bool supported = false;
  std::string reason;
};

struct Step {
  Problem problem;
  Choice chosen = Choice::kNone;
  Verdict cudnn;
};

struct Explanation {
  Choice chosen = Choice::kNone;  // kCudnn: for every step
  Verdict cudnn;                  // of all steps; each rule once
  Probe probe;                    // of every step
  OwnKernel kiln;                 // of every step
  /// The problem itself without context parallelism. None where that refuses it.
  std::vector<Step> steps;
};

enum class CudnnSource : std::uint8_t { kNamed, kInstalled };

struct ExplainOptions {
  std::optional<ContextParallelism> parallelism{};
  CudnnSource source = CudnnSource::kNamed;
};

/// `question.problem` has passed validate().
[[nodiscard]] Explanation explain(const Question& question,
                                  const ExplainOptions& options);

}  // namespace kiln::attention
