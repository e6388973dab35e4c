// Cross-entropy: what it checks and launches. kiln/ops/cross_entropy.h says what it
// computes.

#pragma once

#include "kiln/device.h"
#include "kiln/ops/cross_entropy.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

/// The launch on `device`: one kernel per data type, for every shape. Errors:
/// kInvalidArgument.
[[nodiscard]] Result<Launches> plan(const CrossEntropy& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const CrossEntropyForward& args,
                                    const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const CrossEntropyBackward& args,
                                    const Device& device,
                                    Pointers pointers = Pointers::kIgnored);

}  // namespace kiln::ops
