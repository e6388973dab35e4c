// Rotary position embedding: what it checks and launches. kiln/ops/rope.h says what it
// computes.

#pragma once

#include "kiln/device.h"
#include "kiln/ops/rope.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

/// The launches on `device`. They depend on whether the pointers of the table, of
/// starts and of cu_seqlens are null, even if pointers are ignored. Errors:
/// kInvalidArgument.
[[nodiscard]] Result<Launches> plan(const RopeForward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);
[[nodiscard]] Result<Launches> plan(const RopeBackward& args, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);

}  // namespace kiln::ops
