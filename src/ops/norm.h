// LayerNorm and RMSNorm: what they check and launch. kiln/ops/norm.h says what they
// compute.

#pragma once

#include "kiln/device.h"
#include "kiln/ops/norm.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

/// The launches on `device`. Errors: kInvalidArgument, also if workspace_bytes is too
/// small, unless it is 0 and pointers are ignored.
[[nodiscard]] Result<Launches> plan(const LayerNormForward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const LayerNormBackward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const RmsNormForward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const RmsNormBackward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);

}  // namespace kiln::ops
