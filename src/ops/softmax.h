// Softmax: what it checks and launches. kiln/ops/softmax.h says what it computes.

#pragma once

#include "kiln/device.h"
#include "kiln/ops/softmax.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

/// The launches on `device`. Errors: kInvalidArgument.
[[nodiscard]] Result<Launches> plan(const SoftmaxForward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const SoftmaxBackward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);

}  // namespace kiln::ops
