// Scaled dot-product attention and its gradients: by cuDNN, if it can run the problem
// on the device, else by Kiln's own kernel.
//
//   kiln::ops::AttentionProblem problem{.dtype = kiln::ops::DType::kBf16,
//                                       .batch = 4, .heads = 32, .kv_heads = 8,
//                                       .sq = 4096, .skv = 4096, .dqk = 128, .dv = 128,
//                                       .mask = kiln::ops::AttentionMask::kCausal};
//   set_strides(problem);
//   auto choice = kiln::ops::prepare_attention_forward(service, device, problem);
//   auto done = kiln::ops::attention_forward(
//       service, device, stream, problem,
//       {.q = q, .k = k, .v = v, .o = o, .workspace = workspace,
//        .workspace_bytes = choice->workspace_bytes});
//
//   s = scale * q k^T + bias, p = softmax(s) over the keys that a query sees,
//   o = dropout(p) v,         stats = log(sum(exp(s))) over the same keys.
//
// q is [batch, heads, sq, dqk], k is [batch, kv_heads, skv, dqk], v is [batch,
// kv_heads, skv, dv] and o is [batch, heads, sq, dv], with the problem's strides; the
// last dimension is contiguous. heads / kv_heads consecutive query heads share a key
// and a value head. A query that sees no key has o = 0, stats = -infinity, gradient 0.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kiln/device.h"
#include "kiln/export.h"
#include "kiln/ops/dtype.h"
#include "kiln/result.h"
#include "kiln/service.h"

struct CUstream_st;

namespace kiln::ops {

/// The keys j that query i sees. Causal: j <= i (top-left aligned). Bottom right: j <=
/// i + skv - sq. Padding: only keys within the true length of the sequence; bottom
/// right then takes the true lengths for sq and skv.
enum class AttentionMask : std::uint8_t {
  kNone,
  kCausal,
  kCausalBottomRight,
  kPadding,
  kPaddingCausal,
  kPaddingCausalBottomRight,
};

/// kPostScale adds AttentionTensors::bias to scale * q k^T. kAlibi adds
/// -slope * |d - j|, where d = i (bottom right: i + skv - sq), with the slopes of Press
/// et al., 2022.
enum class AttentionBias : std::uint8_t { kNone, kPostScale, kAlibi };

/// Order of batch, sequence, head and dimension in memory. kThd: packed sequences of
/// different lengths; cu_seqlens has their offsets.
enum class AttentionLayout : std::uint8_t { kBshd, kSbhd, kBhsd, kThd };

/// In elements. kThd ignores `batch`.
struct AttentionStrides {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t sequence = 0;
  std::int64_t dim = 0;
  /// Only of q and o, if their heads are not evenly spaced: the stride between groups
  /// of heads that share a key. 0: evenly spaced by `head`.
  std::int64_t group = 0;
  friend bool operator==(const AttentionStrides&, const AttentionStrides&) = default;
};

/// What both passes compute. Thread safety: none; a plain value.
struct AttentionProblem {
  DType dtype = DType::kUnset;
  std::int64_t batch = 0;
  std::int64_t heads = 0;     // of the query
  std::int64_t kv_heads = 0;  // of key and value
  std::int64_t sq = 0;        // length of the query; if lengths differ, the longest
  std::int64_t skv = 0;       // length of key and value, likewise
  std::int64_t dqk = 0;       // head dimension of query and key
  std::int64_t dv = 0;        // of value and output
  AttentionLayout layout = AttentionLayout::kBshd;
  /// A gradient has the strides of its tensor.
  AttentionStrides q{};
  AttentionStrides k{};
  AttentionStrides v{};
  AttentionStrides o{};
  AttentionMask mask = AttentionMask::kNone;
  std::int64_t window_left = -1;  // keys seen before the diagonal; -1: all
  std::int64_t window_right = -1;
  AttentionBias bias = AttentionBias::kNone;
  double dropout = 0;
  friend bool operator==(const AttentionProblem&, const AttentionProblem&) = default;
};

/// Sets the strides of q, k, v and o to those of contiguous tensors in problem.layout.
KILN_EXPORT void set_strides(AttentionProblem& problem);

/// The two head dimensions of a 5-dimensional tensor. Strides in elements.
struct GroupedHeads {
  std::int64_t groups = 0;
  std::int64_t heads = 0;  // in each group
  std::int64_t group_stride = 0;
  std::int64_t head_stride = 0;  // 0: the group shares one key or value head
};
struct Heads {
  std::int64_t count = 0;
  std::int64_t stride = 0;
  std::int64_t group_stride = 0;  // 0: evenly spaced by `stride`
  friend bool operator==(const Heads&, const Heads&) = default;
};
/// The same memory as one dimension of heads: `count` for AttentionProblem's heads or
/// kv_heads, the strides for `head` and `group` of AttentionStrides. Copies nothing.
/// Errors: kInvalidArgument.
[[nodiscard]] KILN_EXPORT Result<Heads> flattened(const GroupedHeads& grouped);

/// Options of one call. Give the prepare function the same options as the calls that
/// follow.
struct AttentionOptions {
  /// Forward: write the softmax statistics (log-sum-exp) for the backward pass.
  bool stats = false;
  bool bias_gradient = false;  // backward, kPostScale: write grad_bias
  /// Backward: the same bits every time. Kiln's kernel is always deterministic.
  bool deterministic = false;
  bool capture = false;  // the call will be captured into a CUDA graph
};

/// Device memory. A gradient has the shape and the strides of its tensor. `bias` must
/// be null unless problem.bias is kPostScale; in the backward pass, `grad_bias` must be
/// null unless options.bias_gradient is set. Other pointers that the call does not use
/// are ignored.
struct AttentionTensors {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  /// Written by the forward pass, read by the backward pass.
  void* o = nullptr;
  /// [batch, heads, sq], contiguous; natural logarithms, from either backend. Needed
  /// with options.stats and for the backward pass.
  float* stats = nullptr;
  /// [1, heads, sq, skv], contiguous, of type problem.dtype. To mask, use -infinity: if
  /// a whole row is as low as -1e30, its statistics lose the number of keys, and its
  /// gradients are too large by that factor.
  const void* bias = nullptr;
  /// [batch + 1], for kThd: the offset of each sequence, in tokens, and the end of the
  /// last one. A sequence has at most sq (or skv) tokens.
  const std::int32_t* cu_seqlens_q = nullptr;
  const std::int32_t* cu_seqlens_kv = nullptr;
  /// [batch], for a mask with padding: the true lengths. May be null with kThd.
  const std::int32_t* lengths_q = nullptr;
  const std::int32_t* lengths_kv = nullptr;
  /// One number each, for dropout. Give both passes the same numbers, so that they drop
  /// the same probabilities. Kiln's kernels (Philox 4x32-10) draw 16 bits per
  /// probability: they round dropout to a multiple of 1/65536 and need an offset below
  /// 2^32.
  const std::int64_t* dropout_seed = nullptr;
  const std::int64_t* dropout_offset = nullptr;
  /// For the backward pass alone.
  const void* grad_o = nullptr;
  void* grad_q = nullptr;
  void* grad_k = nullptr;
  void* grad_v = nullptr;
  void* grad_bias = nullptr;  // with options.bias_gradient
  /// The factor of q k^T; unset: 1 / sqrt(dqk).
  std::optional<float> scale{};
  /// At least AttentionChoice::workspace_bytes, aligned to 256 bytes; may be null if
  /// that is 0. The call may overwrite all workspace_bytes.
  void* workspace = nullptr;
  std::uint64_t workspace_bytes = 0;
};

enum class AttentionBackend : std::uint8_t { kCudnn, kKiln };

/// The backend of one pass of a problem on a device.
struct AttentionChoice {
  AttentionBackend backend = AttentionBackend::kKiln;
  std::string reason{};  // if cuDNN refuses: the rule, its reason and the remedy
  std::uint64_t workspace_bytes = 0;  // for this pass, with either backend
};

/// Launches the forward pass, which writes o (and stats, if asked for), on `device` in
/// `stream`; asynchronous. A null stream is the default stream of `device`. The backend
/// is decided once per problem, device, pass and options: the one that KILN_ATTENTION
/// or Options::attention names; else cuDNN if it can run the problem, else Kiln's own
/// kernel. The decision is logged: a refusal by cuDNN as a warning, once for each kind,
/// all else as information. The service keeps every decision and cuDNN plan: round
/// lengths that keep changing up to a few values. cuDNN never runs a call with a tensor
/// that is not aligned to 16 bytes, or with a scale that is not above 0. The first call
/// fetches or builds what runs, and blocks. Thread-safe.
///
/// The two passes of a problem may have different backends, except with dropout: the
/// random numbers of the backends differ, so one decision holds for both passes. With
/// dropout, give both passes the same problem, the same scale and aligned tensors.
///
/// Errors: kInvalidArgument (problem, tensors, workspace; a stream of another device; a
/// stream under capture and a problem that was not prepared); kUnavailable (no backend,
/// or not the one that the setting names, runs the problem on this device); those of
/// Service::get() and Kernel::launch().
[[nodiscard]] KILN_EXPORT Result<void> attention_forward(
    Service& service, const Device& device, CUstream_st* stream,
    const AttentionProblem& problem, const AttentionTensors& tensors,
    const AttentionOptions& options = {});

/// Launches the backward pass, as attention_forward() does the forward pass.
[[nodiscard]] KILN_EXPORT Result<void> attention_backward(
    Service& service, const Device& device, CUstream_st* stream,
    const AttentionProblem& problem, const AttentionTensors& tensors,
    const AttentionOptions& options = {});

/// Decides the backend, and builds and loads on `device` what attention_forward() needs
/// with aligned tensors and a scale above 0. Call it before a capture begins, on the
/// thread that captures. Thread-safe. Errors: as attention_forward().
[[nodiscard]] KILN_EXPORT Result<AttentionChoice> prepare_attention_forward(
    Service& service, const Device& device, const AttentionProblem& problem,
    const AttentionOptions& options = {});

/// As above, for attention_backward().
[[nodiscard]] KILN_EXPORT Result<AttentionChoice> prepare_attention_backward(
    Service& service, const Device& device, const AttentionProblem& problem,
    const AttentionOptions& options = {});

/// Explains which backend would run each pass, and why, with aligned tensors and a
/// scale above 0: `{"forward": {...}, "backward": {...}}`, each in the format of `kiln
/// attention explain --json`. Asks the installed cuDNN by building its plan. Ignores
/// KILN_ATTENTION and Options::attention. Thread-safe. Errors: kInvalidArgument,
/// kUnavailable (no driver, a forked child).
[[nodiscard]] KILN_EXPORT Result<std::string> explain_attention(
    Service& service, const Device& device, const AttentionProblem& problem,
    const AttentionOptions& options = {});

}  // namespace kiln::ops
