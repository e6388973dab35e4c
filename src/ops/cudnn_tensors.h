// Assigns the tensors of an attention call to the roles in cuDNN's plan.

#pragma once

#include <cstdint>
#include <vector>

#include "cudnn/plan_arguments.h"
#include "ops/attention.h"
#include "ops/plan.h"

namespace kiln::ops {

/// Exactly the tensors that the plan of `call.problem` takes. `scale` is read when the
/// plan runs. Offsets and lengths of packed sequences, and then a boolean bias as one
/// that is added, lie at the beginning of the workspace.
[[nodiscard]] std::vector<attention::TensorPointer> cudnn_tensors(
    const AttentionCall& call, float& scale);

/// That part of the workspace; a multiple of 256. 0: the problem has neither.
[[nodiscard]] std::uint64_t bytes_before_plan(const attention::Problem& problem);

/// Writes what is there. Empty: the problem has neither. Checks no pointer.
[[nodiscard]] Launches launches_before_plan(const AttentionCall& call);

/// All that a call launches beside cuDNN's plan: launches_before_plan(), and
/// empty_sequence_launches(), which follow it.
[[nodiscard]] Launches launches_beside_plan(const AttentionCall& call);

}  // namespace kiln::ops
