// The attention problem as a value: what one call of softmax(Q K^T) V, or of its
// gradient, computes. Knows neither devices nor libraries.

#pragma once

#include <cstdint>

#include "kiln/export.h"
#include "kiln/ops/dtype.h"
#include "kiln/result.h"

namespace kiln::attention {

using ops::DType;

enum class Pass : std::uint8_t { kForward, kBackward };

/// Which keys j query i sees. Causal: j <= i (top-left aligned). Bottom right:
/// j <= i + skv - sq. Padding: within the true lengths of its sequence alone.
enum class Mask : std::uint8_t {
  kNone,
  kCausal,
  kCausalBottomRight,
  kPadding,
  kPaddingCausal,
  kPaddingCausalBottomRight,
};

enum class Bias : std::uint8_t { kNone, kPostScale, kAlibi };

/// Order of batch, sequence, head and dimension in memory. thd: packed sequences, each
/// of its own length; cu_seqlens says where they begin.
enum class Layout : std::uint8_t { kBshd, kSbhd, kBhsd, kThd };

/// In elements. thd ignores `batch`.
struct Strides {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t sequence = 0;
  std::int64_t dim = 0;
  /// Of q and o, where heads are not equally far apart: from the first head of a group,
  /// whose heads share a key, to the first of the next. 0: `head` leads to every head.
  std::int64_t group = 0;
  friend bool operator==(const Strides&, const Strides&) = default;
};

/// Equal problems have one execution plan. Thread safety: a value.
struct Problem {
  Pass pass = Pass::kForward;
  bool training = false;
  DType dtype = DType::kUnset;
  std::int64_t batch = 0;
  std::int64_t heads = 0;     // of the query
  std::int64_t kv_heads = 0;  // of key and value
  std::int64_t sq = 0;        // queries; of sequences of several lengths the longest
  std::int64_t skv = 0;       // keys, likewise
  std::int64_t dqk = 0;       // head dimension of query and key
  std::int64_t dv = 0;        // of value and output
  Layout layout = Layout::kBshd;
  /// A gradient has the strides of what it is the gradient of.
  Strides q{};
  Strides k{};
  Strides v{};
  Strides o{};
  Mask mask = Mask::kNone;
  std::int64_t window_left = -1;  // keys before the diagonal; -1: all
  std::int64_t window_right = -1;
  Bias bias = Bias::kNone;
  bool bias_gradient = false;  // of a backward pass with a post-scale bias
  double dropout = 0;
  bool deterministic = false;
  bool stats = false;    // write the softmax statistics (log-sum-exp)
  bool capture = false;  // to run inside a CUDA graph
  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Sets the strides of q, k, v and o to those of contiguous tensors in problem.layout.
KILN_EXPORT void set_strides(Problem& problem);

/// Whether the fields agree with each other, whichever backend runs the problem: a
/// backward pass needs `training`, bias_gradient needs Bias::kPostScale, and so on.
/// Errors: kInvalidArgument, naming the field: "problem.heads: …".
[[nodiscard]] KILN_EXPORT Result<void> validate(const Problem& problem);

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

}  // namespace kiln::attention
