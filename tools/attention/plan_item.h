// A plan of cuDNN as an item of a run of builds.

#pragma once

#include "cudnn/plan_service.h"
#include "tools/attention/command.h"
#include "tools/build_run.h"

namespace kiln::tools {

/// What is shown of a problem on a device, or on an architecture alone; its `keyed` is
/// empty.
[[nodiscard]] BuildItem problem_item(const attention::Problem& problem,
                                     const AttentionTarget& target);

/// The plan of a problem for a device; its `keyed` is the plan's, or the error that
/// keeps it from having a key.
[[nodiscard]] BuildItem plan_item(PlanService& plans, const attention::Problem& problem,
                                  const device::DeviceProperties& device);

}  // namespace kiln::tools
