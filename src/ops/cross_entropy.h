// Cross-entropy: what it checks and launches. kiln/ops/cross_entropy.h says what it
// computes.

#pragma once

#include "kiln/device.h"
#include "kiln/ops/cross_entropy.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

/// The launch on `device`: of each type one kernel for every shape. Looks at no
/// pointer. Errors: kInvalidArgument.
[[nodiscard]] Result<Plan> plan(const CrossEntropy& args, const Device& device);
[[nodiscard]] Result<Plan> plan(const CrossEntropyForward& args, const Device& device);
[[nodiscard]] Result<Plan> plan(const CrossEntropyBackward& args, const Device& device);

/// What plan() does not look at, of arguments that it takes. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_pointers(const CrossEntropy& args);
[[nodiscard]] Result<void> check_pointers(const CrossEntropyForward& args);
[[nodiscard]] Result<void> check_pointers(const CrossEntropyBackward& args);

}  // namespace kiln::ops
