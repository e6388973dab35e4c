// Assigns the tensors of an attention call to the roles in cuDNN's plan.

#pragma once

#include <cstdint>
#include <vector>

#include "cudnn/plan_arguments.h"
#include "ops/attention.h"
#include "ops/plan.h"

namespace kiln::ops {

/// Exactly the tensors that the plan of `call.problem` takes. `scale` is read when the
/// plan runs. For packed sequences, offsets and lengths lie at the beginning of the
/// workspace, where sequence_launches() writes them.
[[nodiscard]] std::vector<attention::TensorPointer> cudnn_tensors(
    const AttentionCall& call, float& scale);

/// The part of the workspace for offsets and lengths of packed sequences; a multiple of
/// 256. 0: the problem has none.
[[nodiscard]] std::uint64_t sequence_bytes(const attention::Problem& problem);

/// Writes these offsets and lengths. Empty: there are none. Checks no pointer.
[[nodiscard]] Launches sequence_launches(const AttentionCall& call);

/// All that a call launches beside cuDNN's plan: sequence_launches(), which come before
/// it, and empty_sequence_launches(), which follow it.
[[nodiscard]] Launches launches_beside_plan(const AttentionCall& call);

}  // namespace kiln::ops
