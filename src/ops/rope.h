// Rotary position embedding: what it checks and launches. kiln/ops/rope.h says what it
// computes.

#pragma once

#include "kiln/device.h"
#include "kiln/ops/rope.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

/// The launches on `device`. Of pointers only whether those of the table, of starts and
/// of cu_seqlens are null matters. Errors: kInvalidArgument.
[[nodiscard]] Result<Plan> plan(const RopeForward& args, const Device& device);
[[nodiscard]] Result<Plan> plan(const RopeBackward& args, const Device& device);

/// What plan() does not look at, of arguments that it took. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_pointers(const RopeForward& args);
[[nodiscard]] Result<void> check_pointers(const RopeBackward& args);

}  // namespace kiln::ops
