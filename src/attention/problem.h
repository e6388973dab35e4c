// The attention problem as a value: what one call of softmax(Q K^T) V, or of its
// gradient, is asked to compute. Knows neither devices nor libraries.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
void set_strides(Problem& problem);

/// Is this a problem at all, whoever is to run it? A backward pass is of training, and
/// has read statistics; the gradient of a bias is one of a post-scale bias. Errors:
/// kInvalidArgument, naming the field as the command line does: "--heads: …".
[[nodiscard]] Result<void> validate(const Problem& problem);

/// Do query, key and value differ in the order of batch, sequence and head in memory?
[[nodiscard]] bool has_mixed_layouts(const Problem& problem);
/// With thd: do query, key and value lie beside each other in each token's row of one
/// tensor, as far as strides tell?
[[nodiscard]] bool is_interleaved(const Problem& problem);

[[nodiscard]] bool is_padded(Mask mask);
[[nodiscard]] bool is_causal(Mask mask);        // either corner
[[nodiscard]] bool is_bottom_right(Mask mask);  // with or without padding

/// The largest window_right that says more than the mask does; -1: there is no bound on
/// the right. A causal mask is one of 0.
[[nodiscard]] std::int64_t right_bound(const Problem& problem);
/// Does the window leave out what the mask does not?
[[nodiscard]] bool has_window(const Problem& problem);

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
  friend bool operator==(const Heads&, const Heads&) = default;
};
/// The same memory in the 4-dimensional form. Errors: kInvalidArgument, where no one
/// stride reaches every head.
[[nodiscard]] Result<Heads> flattened(const GroupedHeads& grouped);

// Words, as the command line and the rules have them.
[[nodiscard]] std::string_view to_string(Pass pass);
[[nodiscard]] std::string_view to_string(Mask mask);
[[nodiscard]] std::string_view to_string(Bias bias);
[[nodiscard]] std::string_view to_string(Layout layout);
[[nodiscard]] std::string_view dtype_word(DType dtype);

/// Every word of each, in the order of the enumerators; kUnset has none.
[[nodiscard]] std::span<const std::string_view> pass_words();
[[nodiscard]] std::span<const std::string_view> mask_words();
[[nodiscard]] std::span<const std::string_view> bias_words();
[[nodiscard]] std::span<const std::string_view> layout_words();
[[nodiscard]] std::span<const std::string_view> dtype_words();

// Errors: kInvalidArgument, with the words that there are and the nearest of them.
[[nodiscard]] Result<Pass> parse_pass(std::string_view word);
[[nodiscard]] Result<Mask> parse_mask(std::string_view word);
[[nodiscard]] Result<Bias> parse_bias(std::string_view word);
[[nodiscard]] Result<Layout> parse_layout(std::string_view word);
[[nodiscard]] Result<DType> parse_dtype(std::string_view word);

/// "backward bf16 b2 h16/4 sq1024 skv1024 d192/128 causal bshd", and what is unusual.
[[nodiscard]] std::string to_string(const Problem& problem);

}  // namespace kiln::attention
