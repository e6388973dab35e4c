// An attention call's tensors in the roles that cuDNN's plan has for them.

#pragma once

#include <cstdint>
#include <vector>

#include "cudnn/plan_arguments.h"
#include "ops/attention.h"
#include "ops/plan.h"

namespace kiln::ops {

/// What the plan of `call.problem` takes, and nothing else. `scale` is read when the
/// plan is run. Of packed sequences offsets and lengths are at the beginning of the
/// workspace, where sequence_launches() writes them.
[[nodiscard]] std::vector<attention::TensorPointer> cudnn_tensors(
    const AttentionCall& call, float& scale);

/// Of the workspace, for offsets and lengths of packed sequences; a multiple of 256. 0:
/// there are none.
[[nodiscard]] std::uint64_t sequence_bytes(const attention::Problem& problem);

/// Writes them. Empty: there are none. Of pointers none is looked at.
[[nodiscard]] Launches sequence_launches(const AttentionCall& call);

}  // namespace kiln::ops
