// The attention problem as a value: what one call of softmax(Q K^T) V, or of its
// gradient, is asked to compute. Knows neither devices nor libraries.

#pragma once

#include <cstdint>

#include "kiln/export.h"
#include "kiln/ops/dtype.h"
#include "kiln/result.h"

namespace kiln::attention {

using ops::DType;

enum class Pass : std::uint8_t { kForward, kBackward };

/// Where query i sees key j. Top left: j <= i. Bottom right: j <= i + skv - sq.
/// Padding: besides, only up to the true lengths of each sequence.
enum class Mask : std::uint8_t {
  kNone,
  kCausal,
  kCausalBottomRight,
  kPadding,
  kPaddingCausal,
  kPaddingCausalBottomRight,
};

enum class Bias : std::uint8_t { kNone, kPostScale, kAlibi };

/// Order of batch, sequence, head and dimension in memory. thd: sequences of their own
/// lengths one after the other, begun where cu_seqlens says.
enum class Layout : std::uint8_t { kBshd, kSbhd, kBhsd, kThd };

/// In elements. With thd, `batch` is not used.
struct Strides {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t sequence = 0;
  std::int64_t dim = 0;
  /// Of q and o: from the first head of a group, of those that share a key, to the
  /// first of the next, where one stride does not lead to every head. 0: `head` does.
  std::int64_t group = 0;
  friend bool operator==(const Strides&, const Strides&) = default;
};

/// Thread safety: a value. Equal problems are one execution plan.
struct Problem {
  Pass pass = Pass::kForward;
  bool training = false;
  DType dtype = DType::kUnset;
  std::int64_t batch = 0;
  std::int64_t heads = 0;     // of the query
  std::int64_t kv_heads = 0;  // of key and value
  std::int64_t sq = 0;        // with lengths of their own: the longest
  std::int64_t skv = 0;
  std::int64_t dqk = 0;  // head dimension of query and key
  std::int64_t dv = 0;   // of value and output
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
  bool bias_gradient = false;  // wanted, in a backward pass with a post-scale bias
  double dropout = 0;
  bool deterministic = false;
  bool stats = false;    // the softmax statistics (LSE) are wanted
  bool capture = false;  // to run inside a CUDA graph
  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Sets q, k, v and o to those of a contiguous tensor in problem.layout.
KILN_EXPORT void set_strides(Problem& problem);

/// Is this a problem at all, whoever is to run it? A backward pass is of training, and
/// has read statistics; the gradient of a bias is one of a post-scale bias. Errors:
/// kInvalidArgument, naming the field as the command line does: "--heads: …".
[[nodiscard]] KILN_EXPORT Result<void> validate(const Problem& problem);

/// Heads as a 5-dimensional tensor has them: groups of heads, each with its stride.
struct GroupedHeads {
  std::int64_t groups = 0;
  std::int64_t heads = 0;  // in each group
  std::int64_t group_stride = 0;
  std::int64_t head_stride = 0;  // 0: a key or value shared by its group
};
struct Heads {
  std::int64_t count = 0;
  std::int64_t stride = 0;
  std::int64_t group_stride = 0;  // 0: `stride` leads to every head
  friend bool operator==(const Heads&, const Heads&) = default;
};
/// The same memory as a problem has it: its heads, and that tensor's `head` and
/// `group`. Nothing is copied. Errors: kInvalidArgument.
[[nodiscard]] KILN_EXPORT Result<Heads> flattened(const GroupedHeads& grouped);

}  // namespace kiln::attention
