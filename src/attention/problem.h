// One pass of an attention problem as rules, plans and kernels take it, what is asked
// of it, and its words. kiln/ops/attention.h has what a program says of it.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kiln/ops/attention.h"
#include "kiln/result.h"

namespace kiln::attention {

using ops::DType;
using Bias = ops::AttentionBias;
using Layout = ops::AttentionLayout;
using Mask = ops::AttentionMask;
using Strides = ops::AttentionStrides;

enum class Pass : std::uint8_t { kForward, kBackward };

/// Equal ones have one execution plan. Thread safety: a value.
struct Problem : ops::AttentionProblem {
  Pass pass = Pass::kForward;
  bool training = false;  // always, of a backward pass
  bool stats = false;     // write, or read, the softmax statistics
  bool bias_gradient = false;
  bool deterministic = false;
  bool capture = false;
  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Whether the fields agree with each other, whichever backend runs the problem: a
/// backward pass needs `training`, bias_gradient needs Bias::kPostScale, and so on.
/// Errors: kInvalidArgument, naming the field: "problem.heads: …".
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

/// How far a group's first head is beyond where `strides.head` alone leads, for each
/// group before it: 0, where that leads to every head. Of q or o.
[[nodiscard]] std::int64_t group_gap(const Problem& problem, const Strides& strides);

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
