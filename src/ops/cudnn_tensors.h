// An attention call's tensors in the roles that cuDNN's plan has for them.

#pragma once

#include <vector>

#include "attention/plan_arguments.h"
#include "ops/attention.h"

namespace kiln::ops {

/// What the plan of `call.problem` takes, and nothing else. `scale` is read when the
/// plan is run. The problem is not packed.
[[nodiscard]] std::vector<attention::TensorPointer> cudnn_tensors(
    const AttentionCall& call, float& scale);

}  // namespace kiln::ops
