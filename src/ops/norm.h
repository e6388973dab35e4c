// LayerNorm and RMSNorm: what they check and launch. kiln/ops/norm.h says what they
// compute.

#pragma once

#include "kiln/device.h"
#include "kiln/ops/norm.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

/// The launches on `device`. Looks at no pointer. Errors: kInvalidArgument, also for
/// workspace_bytes too few, unless it is 0: that is for check_pointers().
[[nodiscard]] Result<Plan> plan(const LayerNormForward& args, const Device& device);
[[nodiscard]] Result<Plan> plan(const LayerNormBackward& args, const Device& device);
[[nodiscard]] Result<Plan> plan(const RmsNormForward& args, const Device& device);
[[nodiscard]] Result<Plan> plan(const RmsNormBackward& args, const Device& device);

/// What plan() does not look at. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_pointers(const LayerNormForward& args);
[[nodiscard]] Result<void> check_pointers(const LayerNormBackward& args);
[[nodiscard]] Result<void> check_pointers(const RmsNormForward& args);
[[nodiscard]] Result<void> check_pointers(const RmsNormBackward& args);

}  // namespace kiln::ops
