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

/// AttentionTensors::tokens_q or tokens_kv, as kernels take it: 0 means no bound.
[[nodiscard]] std::int32_t packed_rows(std::int64_t tokens);

/// What q k^T is multiplied by.
[[nodiscard]] float scale_of(const AttentionCall& call);

/// The alignment of the call's tensors, and the sign of its scale.
[[nodiscard]] attention::CallProperties properties_of(const AttentionCall& call);

/// Checks what must hold for every backend: the problem, the scale, and that no two
/// rows of an output share memory. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_options(const AttentionCall& call);

/// The launches on `device` for a call that passed check_options(). Of the pointers
/// only the alignment matters here, which decides the kernel. Errors: kInvalidArgument
/// (a workspace that is too small); kUnavailable, if no kernel supports the call.
[[nodiscard]] Result<Launches> launches(const AttentionCall& call,
                                        const Device& device);

/// What follows the pass of a problem whose sequences have lengths of their own: it
/// sets the rows of packed tensors that no sequence has, and the outputs of a sequence
/// without queries or without keys, which cuDNN leaves as they were (9.14 on an H200).
/// Empty: there are no such rows and sequences. Checks no pointer.
[[nodiscard]] Launches empty_sequence_launches(const AttentionCall& call);

/// check_options(), then launches(), then check_pointers() unless pointers are ignored.
[[nodiscard]] Result<Launches> plan(const AttentionCall& call, const Device& device,
                                    Pointers pointers = Pointers::kIgnored);

/// Checks the pointers of a call that passed check_options(): which are null, their
/// alignment, and that no output overlaps another tensor. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_pointers(const AttentionCall& call);

/// The scratch memory that Kiln's kernels need.
[[nodiscard]] std::uint64_t attention_workspace_bytes(
    const attention::Problem& problem);

}  // namespace kiln::ops
