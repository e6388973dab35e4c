// From cuDNN's operation graph to an execution plan: every engine configuration that
// cuDNN's heuristics name is tried in their order, and each says why it does not run.

#pragma once

#include <string_view>
#include <vector>

#include "attention/plan.h"
#include "attention/problem.h"
#include "compile/protocol/plan_job.h"
#include "cudnn/worker/problem_graph.h"
#include "kiln/result.h"

namespace kiln::plan_worker {

struct Built {
  std::optional<attention::Plan> plan;         // nullopt: every attempt was refused
  std::vector<compile::PlanAttempt> attempts;  // the last of a plan is its own
};

/// `device_json` is what `device` was made of. Errors: kUnavailable, where cuDNN lacks
/// what it builds with.
[[nodiscard]] Result<Built> build_plan(const attention::Problem& problem,
                                       const ProblemGraph& graph,
                                       const DeviceProperties& device,
                                       std::string_view device_json);

}  // namespace kiln::plan_worker
