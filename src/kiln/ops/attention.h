// Scaled dot-product attention and its gradients, whoever computes them: cuDNN, where
// it can run the problem on that device, else Kiln's own kernel.
//
//   kiln::attention::Problem problem{.dtype = kiln::ops::DType::kBf16,
//                                    .batch = 4, .heads = 32, .kv_heads = 8,
//                                    .sq = 4096, .skv = 4096, .dqk = 128, .dv = 128,
//                                    .mask = kiln::attention::Mask::kCausal};
//   kiln::attention::set_strides(problem);
//   auto choice = kiln::ops::prepare(service, device, problem);  // of what size below
//   auto done = kiln::ops::attention_forward(
//       service, device, stream, problem,
//       {.q = q, .k = k, .v = v, .o = o, .workspace = workspace,
//        .workspace_bytes = choice->workspace_bytes});
//
//   s = scale * q k^T + bias, p = softmax(s) over the keys that a query sees,
//   o = dropout(p) v,         stats = log(sum(exp(s))) over the same keys.
//
// q is [batch, heads, sq, dqk], k and v [batch, kv_heads, skv, dqk and dv], o [batch,
// heads, sq, dv], where the problem's strides say; neighbours in the last dimension are
// beside each other. heads / kv_heads neighbouring heads share key and value. A query
// that sees no key has o = 0 and stats = -infinity, and no gradient.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kiln/attention.h"
#include "kiln/device.h"
#include "kiln/export.h"
#include "kiln/result.h"
#include "kiln/service.h"

struct CUstream_st;

namespace kiln::ops {

/// Memory of the device. A gradient has the shape and the strides of what it is the
/// gradient of. Where the problem has no bias, `bias` has to be null, and in the
/// backward pass `grad_bias` where it has no bias_gradient; other tensors that it does
/// not have are not looked at.
struct AttentionTensors {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  /// Written by the forward pass, read by the backward pass.
  void* o = nullptr;
  /// [batch, heads, sq], contiguous; with problem.stats or problem.training. In natural
  /// logarithms, whoever computes them.
  float* stats = nullptr;
  /// [1, heads, sq, skv], contiguous, of the problem's type. Mask by -infinity: of a
  /// row that has nothing but a number as low as -1e30, statistics cannot tell how many
  /// keys there are, and the row's gradients are too large by that.
  const void* bias = nullptr;
  /// [batch + 1] of a packed layout (thd): where sequences begin, in tokens, and where
  /// the last one ends. From one to the next are at most sq, or skv, tokens.
  const std::int32_t* cu_seqlens_q = nullptr;
  const std::int32_t* cu_seqlens_kv = nullptr;
  /// [batch] of a mask with padding: the true lengths. With thd they may be left out.
  const std::int32_t* lengths_q = nullptr;
  const std::int32_t* lengths_kv = nullptr;
  /// One number each, of a problem with dropout. Equal ones drop equal probabilities:
  /// both passes take the same. Kiln's kernels draw 16 bits for each (Philox 4x32-10):
  /// dropout is rounded to 65536ths, and an offset counts up to 2^32 - 1 for a seed.
  const std::int64_t* dropout_seed = nullptr;
  const std::int64_t* dropout_offset = nullptr;
  /// Of the backward pass alone.
  const void* grad_o = nullptr;
  void* grad_q = nullptr;
  void* grad_k = nullptr;
  void* grad_v = nullptr;
  void* grad_bias = nullptr;  // with problem.bias_gradient
  /// What q k^T is multiplied by; none: 1 / sqrt(dqk).
  std::optional<float> scale{};
  /// What prepare() says, aligned to 256 bytes; null where that is 0. May be written
  /// to its end.
  void* workspace = nullptr;
  std::uint64_t workspace_bytes = 0;
};

enum class AttentionBackend : std::uint8_t { kCudnn, kKiln };

/// What runs a problem on a device.
struct AttentionChoice {
  AttentionBackend backend = AttentionBackend::kKiln;
  std::string reason{};  // why: of cuDNN's refusal the rule, its reason and the remedy
  std::uint64_t workspace_bytes = 0;  // of this pass; enough for either backend
};

/// Computes o and stats on `device`, in `stream`, of which a null one is the default
/// stream of that device; does not wait for it. Decides once for each problem and
/// device: KILN_ATTENTION=cudnn|kiln, else cuDNN where it can, else Kiln's own kernel,
/// and logs why: a refusal of cuDNN's as a warning, once a kind, else as information.
/// What was decided, and cuDNN's plan, stay as long as the service: round lengths that
/// vary without end up to a few. Tensors that do not begin at multiples of 16 bytes,
/// and a scale that is not above 0, are for Kiln's kernel. Fetches or builds what runs.
/// Thread-safe.
///
/// The passes of one problem may have different backends, but not with dropout, whose
/// random numbers differ: then it is decided for both at once. So there give both the
/// same problem but for `pass`, `training`, `stats` and `bias_gradient`, the same
/// scale, and aligned tensors.
///
/// Errors: kInvalidArgument (problem, tensors, workspace, a stream of another device or
/// one that is captured with a problem that was not prepared); kUnavailable (the device
/// or the problem is none for either; what is forced cannot run it); those of
/// Service::get().
[[nodiscard]] KILN_EXPORT Result<void> attention_forward(
    Service& service, const Device& device, CUstream_st* stream,
    const attention::Problem& problem, const AttentionTensors& tensors);

/// Computes the gradients, likewise. The same bits every time where the problem says
/// `deterministic`, and by Kiln's kernel always.
[[nodiscard]] KILN_EXPORT Result<void> attention_backward(
    Service& service, const Device& device, CUstream_st* stream,
    const attention::Problem& problem, const AttentionTensors& tensors);

/// Decides, and builds and loads what the calls above need on `device`, of the pass
/// that problem.pass says, for tensors that are aligned and a scale above 0: before
/// a stream is captured, say, by the thread that captures. Thread-safe. Errors: as
/// there.
[[nodiscard]] KILN_EXPORT Result<AttentionChoice> prepare(
    Service& service, const Device& device, const attention::Problem& problem);

}  // namespace kiln::ops
