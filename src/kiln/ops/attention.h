// Scaled dot-product attention and its gradients: by cuDNN, if it can run the problem
// on the device, else by Kiln's own kernel.
//
//   kiln::ops::AttentionProblem problem{.dtype = kiln::ops::DType::kBf16,
//                                       .batch = 4, .heads = 32, .kv_heads = 8,
//                                       .sq = 4096, .skv = 4096, .dqk = 128, .dv = 128,
//                                       .mask = kiln::ops::AttentionMask::kCausal};
//   set_strides(problem);
//   auto choice = kiln::ops::prepare_attention_forward(service, device, problem);
//   // workspace: choice->workspace_bytes of device memory, at a multiple of 256 bytes
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
// last dimension is contiguous. Grouped-query attention: heads / kv_heads consecutive
// query heads share a key and a value head. A query that sees no key has o = 0, stats =
// -infinity, gradient 0.

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

/// The keys j that query i sees, both counted from 0 in their sequence. Causal: j <= i
/// (top-left aligned). Bottom right: j <= i + skv - sq; where each sequence has its own
/// length (padding, kThd), sq and skv are these lengths. Padding: only keys within the
/// true length of the sequence, and a query beyond its true length sees none.
enum class AttentionMask : std::uint8_t {
  kNone,
  kCausal,
  kCausalBottomRight,
  kPadding,
  kPaddingCausal,
  kPaddingCausalBottomRight,
};

/// What is added to the score of query i and key j, scale * q k^T. kPostScale:
/// AttentionTensors::bias. kAlibi: -slope * |i - j|, with the slopes of Press et al.,
/// 2022; with a bottom-right mask -slope * |i + skv - sq - j|. kBoolean: nothing where
/// the byte in AttentionTensors::bias is not 0, and -infinity where it is 0: the query
/// does not see the key.
enum class AttentionBias : std::uint8_t { kNone, kPostScale, kAlibi, kBoolean };

/// Order of batch, sequence, head and dimension in memory, outermost first. kThd:
/// packed sequences of different lengths, [tokens, heads, dimension]; cu_seqlens_q and
/// cu_seqlens_kv say where each begins.
enum class AttentionLayout : std::uint8_t { kBshd, kSbhd, kBhsd, kThd };

/// In elements, 0 or more. kThd ignores `batch`, except of a bias.
struct AttentionStrides {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t sequence = 0;
  std::int64_t dim = 0;  // 1: the last dimension is contiguous
  /// For q and o alone: the stride between groups, where a group is the heads that
  /// share a key head; `head` is then the stride within a group. 0: all heads are
  /// `head` apart.
  std::int64_t group = 0;
  friend bool operator==(const AttentionStrides&, const AttentionStrides&) = default;
};

/// What both passes compute. All sizes are 1 or more. Thread safety: none; a plain
/// value.
struct AttentionProblem {
  DType dtype = DType::kUnset;
  std::int64_t batch = 0;
  std::int64_t heads = 0;     // of the query
  std::int64_t kv_heads = 0;  // of key and value; divides `heads`
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
  KILN_OPTION AttentionMask mask = AttentionMask::kNone;
  /// Sliding window: query i also sees only the keys from d - window_left to d +
  /// window_right, where d = i (bottom right: i + skv - sq). -1: no bound. A causal
  /// mask allows 0 or -1 as window_right.
  KILN_OPTION std::int64_t window_left = -1;
  KILN_OPTION std::int64_t window_right = -1;
  KILN_OPTION AttentionBias bias_kind = AttentionBias::kNone;
  /// The probability that a p becomes 0, from 0 to 1; the others are divided by 1 -
  /// dropout.
  KILN_OPTION double dropout = 0;
  /// Of AttentionTensors::bias, as [batch, heads, sq, skv]: 0 is the stride of a
  /// dimension in which it is alike, `dim` is 1 and `group` 0. All 0: those of a
  /// contiguous [1, heads, sq, skv].
  KILN_SINCE(0, 2) AttentionStrides bias{};
  friend bool operator==(const AttentionProblem&, const AttentionProblem&) = default;
};

/// Sets the strides of q, k, v and o to those of contiguous tensors in problem.layout;
/// to 0 if the call would refuse the sizes. Call it after the sizes and the layout are
/// set.
KILN_EXPORT void set_strides(AttentionProblem& problem);

/// The heads of a tensor as two dimensions, such as `groups` and `heads` of [batch,
/// sequence, groups, heads, dim]. Strides in elements.
struct GroupedHeads {
  std::int64_t groups = 0;
  std::int64_t heads = 0;  // in each group
  std::int64_t group_stride = 0;
  std::int64_t head_stride = 0;  // 0: the group shares one key or value head
};
/// The same heads as one dimension.
struct Heads {
  std::int64_t count = 0;
  std::int64_t stride = 0;
  std::int64_t group_stride = 0;  // 0: all heads are `stride` apart
  friend bool operator==(const Heads&, const Heads&) = default;
};
/// Two dimensions of heads as one; the memory is the same, nothing is copied. `count`
/// is AttentionProblem's `heads` or `kv_heads`; `stride` and `group_stride` are `head`
/// and `group` of AttentionStrides. Errors: kInvalidArgument (a size below 1, a
/// negative stride, or beyond 2^53 elements).
[[nodiscard]] KILN_EXPORT Result<Heads> flattened(const GroupedHeads& grouped);

/// Options of one call. Give the prepare function the same options as the calls that
/// follow: other options need another decision.
struct AttentionOptions {
  /// Forward: write the softmax statistics (log-sum-exp), which the backward pass
  /// needs.
  bool stats = false;
  bool bias_gradient = false;  // backward, with kPostScale: write grad_bias
  /// Backward: the same bits every time. Kiln's kernel is always deterministic.
  KILN_OPTION bool deterministic = false;
  /// The call will be captured into a CUDA graph: some cuDNN plans must not be.
  KILN_OPTION bool capture = false;
};

/// Device memory, except `scale`. q, k, v, o, bias and their gradients have type
/// problem.dtype, but a bias of kBoolean has bytes. Each pointer must be aligned to an
/// element. A gradient has the shape and the strides of its tensor. A pointer that
/// problem and options give no use must be null: `bias` without kPostScale or kBoolean,
/// cu_seqlens_* without kThd, lengths_* without a mask with padding, dropout_* without
/// dropout; in the forward pass `stats` without options.stats, in the backward pass
/// `grad_bias` without options.bias_gradient. The forward pass ignores all grad_*.
struct AttentionTensors {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  /// Written by the forward pass, read by the backward pass.
  void* o = nullptr;
  /// [batch, heads, sq], contiguous, also with kThd; natural logarithms, from either
  /// backend. Needed with options.stats, and by the backward pass, which reads it.
  /// Because a statistic is rounded to float, the probabilities of the backward pass
  /// have a relative error of up to 2e-7 * |score|: more than the rounding of f16 from
  /// |score| = 2500 on, of bf16 from 10000 on. From about 3e6 on gradients of Kiln's
  /// tensor core kernels fade to 0; with a bias, and in those that compute in float,
  /// each key with about the largest score has a probability of up to 1. Neither makes
  /// a gradient infinite or NaN.
  float* stats = nullptr;
  /// [batch, heads, sq, skv] with the strides problem.bias. Its sum with scale * q k^T
  /// is rounded to float, which moves a probability by up to 6e-8 * |sum| of itself, in
  /// both passes alike. To mask keys, use -infinity, not a large number such as -1e30.
  /// If a whole row is that low, a float cannot hold its statistics (-1e30 plus the
  /// logarithm of the number of keys), and the gradients of the row come out too large,
  /// by a factor of the number of keys.
  const void* bias = nullptr;
  /// For kThd: [batch + 1], in tokens, non-decreasing: where each sequence begins, and
  /// where the last one ends. Of a sequence with more than sq (or skv) tokens only the
  /// first ones count. Rows of outputs and gradients that no sequence has become 0:
  /// before the first, behind each, and behind the last up to tokens_q (or tokens_kv).
  const std::int32_t* cu_seqlens_q = nullptr;
  const std::int32_t* cu_seqlens_kv = nullptr;
  /// For a mask with padding: [batch], the true lengths. With kThd may be null: all
  /// tokens that cu_seqlens gives the sequence.
  const std::int32_t* lengths_q = nullptr;
  const std::int32_t* lengths_kv = nullptr;
  /// For dropout: a single number each. Give both passes the same numbers, so that they
  /// drop the same probabilities. Kiln's kernels (Philox 4x32-10) draw 16 bits for each
  /// probability: they round `dropout` to a multiple of 1/65536, and need an offset
  /// below 2^32.
  const std::int64_t* dropout_seed = nullptr;
  const std::int64_t* dropout_offset = nullptr;
  /// For the backward pass alone.
  const void* grad_o = nullptr;
  void* grad_q = nullptr;
  void* grad_k = nullptr;
  void* grad_v = nullptr;
  /// With options.bias_gradient: the sum over what the bias is alike for. Needs
  /// problem.bias.sequence above 0, unless sq is 1.
  void* grad_bias = nullptr;
  /// The factor of q k^T, finite; unset: 1 / sqrt(dqk).
  KILN_OPTION std::optional<float> scale{};
  /// Scratch memory of at least AttentionChoice::workspace_bytes, aligned to 256 bytes;
  /// may be null if that is 0. The call may overwrite all workspace_bytes.
  void* workspace = nullptr;
  std::uint64_t workspace_bytes = 0;
  /// For kThd: the tokens that q and o, and k and v, have room for. Kernels clamp
  /// cu_seqlens_* to them, so that no value there leads outside the tensors. 0: not
  /// known: cu_seqlens_* are believed, and rows behind the last sequence stay as they
  /// are.
  std::int64_t tokens_q = 0;
  std::int64_t tokens_kv = 0;
};

enum class AttentionBackend : std::uint8_t { kCudnn, kKiln };

/// What runs one pass of a problem on a device.
struct AttentionChoice {
  AttentionBackend backend = AttentionBackend::kKiln;
  std::string reason{};  // if cuDNN refuses: the rule, its reason and the remedy
  std::uint64_t workspace_bytes = 0;  // for this pass; enough for either backend
};

/// Launches the forward pass on `device`, one of Service::devices(), in `stream`;
/// asynchronous. It writes o and, with options.stats, stats. A null stream is the
/// default stream of `device`, whatever context is current; the thread's current
/// context does not change. The first call fetches or builds what runs, and blocks.
/// Thread safety: any number of threads.
///
/// The backend is decided once per problem, device, pass and options. It is the one
/// that Options::attention or KILN_ATTENTION names; else cuDNN if it can run the
/// problem, else Kiln's own kernel. cuDNN runs only calls with tensors that are aligned
/// to 16 bytes and with a scale above 0. The decision is logged: a refusal by cuDNN as
/// a warning, once for each kind of refusal, device and pass; all else as information.
/// The service keeps every decision and every cuDNN plan: if lengths keep changing,
/// round them up to a few values.
///
/// The two passes of a problem may have different backends, except with dropout: the
/// backends draw different random numbers, so one decision holds for both passes. With
/// dropout, give both passes the same problem, also the same strides of a bias, the
/// same scale, and aligned tensors.
///
/// During a stream capture, a call runs only if it was prepared, or run once, before
/// the capture, on the same thread and with equal options. What was prepared with
/// options.capture runs there in any case, also if the call does not set it. What was
/// prepared without it is refused there if cuDNN's plan must not be captured.
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

/// Decides the backend, and builds and loads on `device` what attention_forward()
/// needs, provided that its tensors will be aligned to 16 bytes and its scale above 0.
/// Any other call is prepared by running it once. Before a capture, prepare on the
/// thread that captures. Thread safety and errors: as attention_forward().
[[nodiscard]] KILN_EXPORT Result<AttentionChoice> prepare_attention_forward(
    Service& service, const Device& device, const AttentionProblem& problem,
    const AttentionOptions& options = {});

/// As above, for attention_backward().
[[nodiscard]] KILN_EXPORT Result<AttentionChoice> prepare_attention_backward(
    Service& service, const Device& device, const AttentionProblem& problem,
    const AttentionOptions& options = {});

/// Explains which backend would run each pass, and why, provided that tensors are
/// aligned to 16 bytes and the scale is above 0. Returns JSON with the members
/// `forward` and `backward`, each in the format of `kiln attention explain --json`.
/// Blocks: it asks the installed cuDNN by building its plan. Ignores KILN_ATTENTION and
/// Options::attention. Thread safety: any number of threads. Errors: kInvalidArgument,
/// kUnavailable (no driver, a forked child).
[[nodiscard]] KILN_EXPORT Result<std::string> explain_attention(
    Service& service, const Device& device, const AttentionProblem& problem,
    const AttentionOptions& options = {});

}  // namespace kiln::ops
