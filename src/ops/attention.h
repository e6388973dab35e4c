// Attention by Kiln's own kernels: what is checked and launched. kiln/ops/attention.h
// says what is computed.

#pragma once

#include <cstdint>
#include <string_view>

#include "attention/kernel_choice.h"
#include "attention/problem.h"
#include "kiln/device.h"
#include "kiln/ops/attention.h"
#include "kiln/result.h"
#include "ops/plan.h"

namespace kiln::ops {

/// A call of attention_forward() or attention_backward(), as problem.pass says.
struct AttentionCall {
  const attention::Problem& problem;
  const AttentionTensors& tensors;
};

/// "attention_forward", "attention_backward".
[[nodiscard]] std::string_view operation_of(attention::Pass pass);

/// What q k^T is multiplied by.
[[nodiscard]] float scale_of(const AttentionCall& call);

/// Where its tensors begin, and the sign of its scale.
[[nodiscard]] attention::CallProperties properties_of(const AttentionCall& call);

/// What of a call is wrong whoever computes it: its problem, its scale, and rows that
/// are written and share memory. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_options(const AttentionCall& call);

/// The launches on `device` of what check_options() took. Of pointers only whether they
/// are aligned, and whether those that may be left out are null, matters. Errors:
/// kInvalidArgument; kUnavailable, where no kernel is for it.
[[nodiscard]] Result<Launches> launches(const AttentionCall& call,
                                        const Device& device);

/// Both, and check_pointers() unless they are ignored.
[[nodiscard]] Result<Launches> plan(const AttentionCall& call, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);

/// What neither looks at, of a call that they took: addresses, and that nothing
/// written overlaps anything else. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_pointers(const AttentionCall& call);

/// Of scratch memory that Kiln's kernels want.
[[nodiscard]] std::uint64_t attention_workspace_bytes(
    const attention::Problem& problem);

}  // namespace kiln::ops
