// Softmax: what it checks and launches. kiln/ops/softmax.h says what it computes.

#pragma once

#include "kiln/device.h"
#include "kiln/ops/softmax.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

/// The launches on `device`. Looks at no pointer. Errors: kInvalidArgument.
[[nodiscard]] Result<Plan> plan(const SoftmaxForward& args, const Device& device);
[[nodiscard]] Result<Plan> plan(const SoftmaxBackward& args, const Device& device);

/// What plan() does not look at. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_pointers(const SoftmaxForward& args);
[[nodiscard]] Result<void> check_pointers(const SoftmaxBackward& args);

}  // namespace kiln::ops
