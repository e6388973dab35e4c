// Scaled dot-product attention and its gradients: by cuDNN, where it can run the
// problem on that device, else by Kiln's own kernel.
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
// last dimension is contiguous. heads / kv_heads consecutive heads share a key and a
// value. A query that sees no key has o = 0, stats = -infinity, and gradient 0.

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

/// Which keys j query i sees. Causal: j <= i (top-left aligned). Bottom right:
/// j <= i + skv - sq. Padding: within the true lengths of its sequence alone.
enum class AttentionMask : std::uint8_t {
  kNone,
  kCausal,
  kCausalBottomRight,
  kPadding,
  kPaddingCausal,
  kPaddingCausalBottomRight,
};

enum class AttentionBias : std::uint8_t { kNone, kPostScale, kAlibi };

/// Order of batch, sequence, head and dimension in memory. thd: packed sequences, each
/// of its own length; cu_seqlens says where they begin.
enum class AttentionLayout : std::uint8_t { kBshd, kSbhd, kBhsd, kThd };

/// In elements. thd ignores `batch`.
struct AttentionStrides {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t sequence = 0;
  std::int64_t dim = 0;
  /// Of q and o, where heads are not equally far apart: from the first head of a group,
  /// whose heads share a key, to the first of the next. 0: `head` leads to every head.
  std::int64_t group = 0;
  friend bool operator==(const AttentionStrides&, const AttentionStrides&) = default;
};

/// What both passes compute. Thread safety: a value.
struct AttentionProblem {
  DType dtype = DType::kUnset;
  std::int64_t batch = 0;
  std::int64_t heads = 0;     // of the query
  std::int64_t kv_heads = 0;  // of key and value
  std::int64_t sq = 0;        // queries; of sequences of several lengths the longest
  std::int64_t skv = 0;       // keys, likewise
  std::int64_t dqk = 0;       // head dimension of query and key
  std::int64_t dv = 0;        // of value and output
  AttentionLayout layout = AttentionLayout::kBshd;
  /// A gradient has the strides of what it is the gradient of.
  AttentionStrides q{};
  AttentionStrides k{};
  AttentionStrides v{};
  AttentionStrides o{};
  AttentionMask mask = AttentionMask::kNone;
  std::int64_t window_left = -1;  // keys before the diagonal; -1: all
  std::int64_t window_right = -1;
  AttentionBias bias = AttentionBias::kNone;
  double dropout = 0;
  friend bool operator==(const AttentionProblem&, const AttentionProblem&) = default;
};

/// Sets the strides of q, k, v and o to those of contiguous tensors in problem.layout.
KILN_EXPORT void set_strides(AttentionProblem& problem);

/// The heads of a 5-dimensional tensor: groups of heads, and a stride for each.
struct GroupedHeads {
  std::int64_t groups = 0;
  std::int64_t heads = 0;  // in each group
  std::int64_t group_stride = 0;
  std::int64_t head_stride = 0;  // 0: a key or value that its group shares
};
struct Heads {
  std::int64_t count = 0;
  std::int64_t stride = 0;
  std::int64_t group_stride = 0;  // 0: `stride` leads to every head
  friend bool operator==(const Heads&, const Heads&) = default;
};
/// The same memory in four dimensions: a problem's number of heads, and the strides
/// `head` and `group` of that tensor. Copies nothing. Errors: kInvalidArgument.
[[nodiscard]] KILN_EXPORT Result<Heads> flattened(const GroupedHeads& grouped);

/// What one call asks for besides. Give prepare_attention_forward() and its backward
/// twin those of the calls that follow.
struct AttentionOptions {
  /// Of a forward pass: write the softmax statistics (log-sum-exp), which the backward
  /// pass reads.
  bool stats = false;
  bool bias_gradient = false;  // of a backward pass with a post-scale bias
  /// Of a backward pass: the same bits every time. Kiln's kernel always gives them.
  bool deterministic = false;
  bool capture = false;  // to run inside a CUDA graph
};

/// Memory of the device. A gradient has the shape and the strides of what it is the
/// gradient of. Where the problem has no bias, `bias` has to be null, and in the
/// backward pass `grad_bias` without options.bias_gradient; other tensors that the call
/// does not have are not looked at.
struct AttentionTensors {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  /// Written by the forward pass, read by the backward pass.
  void* o = nullptr;
  /// [batch, heads, sq], contiguous; with options.stats, and for the backward pass.
  /// Natural logarithms, from either backend.
  float* stats = nullptr;
  /// [1, heads, sq, skv], contiguous, of the problem's type. Mask with -infinity: where
  /// a whole row is a number as low as -1e30, its statistics lose the number of keys,
  /// and its gradients are too large by that factor.
  const void* bias = nullptr;
  /// [batch + 1], for the packed layout (thd): where each sequence begins, in tokens,
  /// and where the last one ends. Each has at most sq, or skv, tokens.
  const std::int32_t* cu_seqlens_q = nullptr;
  const std::int32_t* cu_seqlens_kv = nullptr;
  /// [batch], for a mask with padding: the true lengths. May be null with thd.
  const std::int32_t* lengths_q = nullptr;
  const std::int32_t* lengths_kv = nullptr;
  /// One number each, for dropout. Equal ones drop the same probabilities: give both
  /// passes the same. Kiln's kernels draw 16 bits for each probability (Philox
  /// 4x32-10): dropout is rounded to 65536ths; an offset is below 2^32.
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
  /// As many bytes as AttentionChoice says, aligned to 256; null where that is 0. All
  /// that is given may be overwritten.
  void* workspace = nullptr;
  std::uint64_t workspace_bytes = 0;
};

enum class AttentionBackend : std::uint8_t { kCudnn, kKiln };

/// What runs a problem on a device.
struct AttentionChoice {
  AttentionBackend backend = AttentionBackend::kKiln;
  std::string reason{};  // where cuDNN refuses: the rule, its reason and the remedy
  std::uint64_t workspace_bytes = 0;  // for this pass, by either backend
};

/// Computes o and stats on `device`, in `stream`, and returns; a null stream means that
/// device's default stream. Who computes is decided once for each problem, device, pass
/// and options: what KILN_ATTENTION or Options::attention says, else cuDNN where it
/// can, else Kiln's own kernel. The reason is logged: a refusal of cuDNN as a warning,
/// once for each kind, all else as information. A decision and cuDNN's plan stay as
/// long as the service, so round lengths that keep changing up to a few. Tensors that
/// are not aligned to 16 bytes, and a scale that is not above 0, go to Kiln's kernel.
/// Fetches or builds what runs. Thread-safe.
///
/// The two passes of a problem may have different backends, but not with dropout, whose
/// random numbers differ: then one decision holds for both. So with dropout give both
/// passes the same problem, the same scale, and aligned tensors.
///
/// Errors: kInvalidArgument (problem, tensors, workspace, a stream of another device, a
/// capture of a problem that was not prepared); kUnavailable (neither backend runs the
/// problem on this device, or the forced one does not); those of Service::get().
[[nodiscard]] KILN_EXPORT Result<void> attention_forward(
    Service& service, const Device& device, CUstream_st* stream,
    const AttentionProblem& problem, const AttentionTensors& tensors,
    const AttentionOptions& options = {});

/// Computes the gradients, likewise.
[[nodiscard]] KILN_EXPORT Result<void> attention_backward(
    Service& service, const Device& device, CUstream_st* stream,
    const AttentionProblem& problem, const AttentionTensors& tensors,
    const AttentionOptions& options = {});

/// Decides, and builds and loads on `device`, what attention_forward() needs with
/// aligned tensors and a scale above 0. Call it before a stream is captured, on the
/// thread that captures. Thread-safe. Errors: as there.
[[nodiscard]] KILN_EXPORT Result<AttentionChoice> prepare_attention_forward(
    Service& service, const Device& device, const AttentionProblem& problem,
    const AttentionOptions& options = {});

/// The same for attention_backward().
[[nodiscard]] KILN_EXPORT Result<AttentionChoice> prepare_attention_backward(
    Service& service, const Device& device, const AttentionProblem& problem,
    const AttentionOptions& options = {});

/// What would run both passes there, and why: `{"forward": {...}, "backward": {...}}`,
/// each as `kiln attention explain --json` prints it, for aligned tensors and a scale
/// above 0. Asks the cuDNN of this machine by building its plan. KILN_ATTENTION is not
/// looked at. Thread-safe. Errors: kInvalidArgument, kUnavailable (a forked child).
[[nodiscard]] KILN_EXPORT Result<std::string> explain_attention(
    Service& service, const Device& device, const AttentionProblem& problem,
    const AttentionOptions& options = {});

}  // namespace kiln::ops
