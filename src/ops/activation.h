// Activations: what they check and launch. kiln/ops/activation.h says what they
// compute.

#pragma once

#include "kiln/device.h"
#include "kiln/ops/activation.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

/// The launches on `device`. Errors: kInvalidArgument.
[[nodiscard]] Result<Launches> plan(const ActivationForward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const ActivationBackward& args,
                                    const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const GluForward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const GluBackward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);

}  // namespace kiln::ops
