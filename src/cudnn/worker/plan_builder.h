// From cuDNN's operation graph to an execution plan. Tries the engine configurations of
// cuDNN's heuristics in order until one builds, and records why the others cannot run.

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
  std::vector<compile::PlanAttempt> attempts;  // the last one built the plan, if any
};

/// `device` was made from `device_json`. Errors: kUnavailable, if cuDNN lacks a library
/// that it builds with.
[[nodiscard]] Result<Built> build_plan(const attention::Problem& problem,
                                       const ProblemGraph& graph,
                                       const DeviceProperties& device,
                                       std::string_view device_json);

}  // namespace kiln::plan_worker
