// Activations: what they check and launch. kiln/ops/activation.h says what they
// compute.

#pragma once

#include "kiln/device.h"
#include "kiln/ops/activation.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

/// The launches on `device`. Looks at no pointer. Errors: kInvalidArgument.
[[nodiscard]] Result<Plan> plan(const ActivationForward& args, const Device& device);
[[nodiscard]] Result<Plan> plan(const ActivationBackward& args, const Device& device);
[[nodiscard]] Result<Plan> plan(const GluForward& args, const Device& device);
[[nodiscard]] Result<Plan> plan(const GluBackward& args, const Device& device);

/// What plan() does not look at. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_pointers(const ActivationForward& args);
[[nodiscard]] Result<void> check_pointers(const ActivationBackward& args);
[[nodiscard]] Result<void> check_pointers(const GluForward& args);
[[nodiscard]] Result<void> check_pointers(const GluBackward& args);

}  // namespace kiln::ops
