// One pass of an attention problem, as rules, plans and kernels see it.
// kiln/ops/attention.h has the part that a program sets.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "interface/enumeration_words.h"
#include "kiln/ops/attention.h"
#include "kiln/result.h"

namespace kiln::attention {

using ops::DType;
using Bias = ops::AttentionBias;
using Layout = ops::AttentionLayout;
using Mask = ops::AttentionMask;
using Strides = ops::AttentionStrides;

enum class Pass : std::uint8_t { kForward, kBackward };

}  // namespace kiln::attention

template <>
inline constexpr std::array<std::string_view, 2> kiln::kWords<kiln::attention::Pass>{
    "fwd", "bwd"};

namespace kiln::attention {

/// What a pass adds to a program's problem.
struct PassOptions {
  Pass pass = Pass::kForward;
  bool training = false;  // always true for a backward pass
  bool stats = false;     // write, or read, the softmax statistics
  bool bias_gradient = false;
  bool deterministic = false;
  bool capture = false;
  friend bool operator==(const PassOptions&, const PassOptions&) = default;
};

/// Equal problems have the same execution plan. Has no field besides those of its two
/// parts; problem_table.h lists them all. What a kernel and cuDNN's graph are told by a
/// problem names all fields of common() by a structured binding: it does not compile
/// until it handles a field that is added. Thread safety: a value.
struct Problem : ops::AttentionProblem, PassOptions {
  [[nodiscard]] ops::AttentionProblem& common() { return *this; }
  [[nodiscard]] const ops::AttentionProblem& common() const { return *this; }
  [[nodiscard]] PassOptions& of_pass() { return *this; }
  [[nodiscard]] const PassOptions& of_pass() const { return *this; }
  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Whether the fields agree with each other, whichever backend runs the problem: a
/// backward pass needs `training`, bias_gradient needs Bias::kPostScale, and so on.
/// Errors: kInvalidArgument, naming the field: "problem.heads: …".
[[nodiscard]] Result<void> validate(const Problem& problem);

/// Do query, key and value differ in the order of batch, sequence and head in memory?
[[nodiscard]] bool has_mixed_layouts(const Problem& problem);
/// With thd: do query, key and value lie side by side in one row per token, as far as
/// strides tell?
[[nodiscard]] bool is_interleaved(const Problem& problem);

[[nodiscard]] bool is_padded(Mask mask);
[[nodiscard]] bool is_causal(Mask mask);        // either corner
[[nodiscard]] bool is_bottom_right(Mask mask);  // with or without padding

/// How many keys to the right of the mask's diagonal a query sees: 0 with a causal
/// mask, else window_right. -1: unlimited.
[[nodiscard]] std::int64_t right_bound(const Problem& problem);
/// Does the window exclude keys that the mask allows?
[[nodiscard]] bool has_window(const Problem& problem);

/// Does AttentionTensors::bias have a bias, added or boolean?
[[nodiscard]] bool has_bias_tensor(const ops::AttentionProblem& problem);
/// Those of a bias; of one that sets none, of a contiguous [1, heads, sq, skv].
[[nodiscard]] Strides bias_strides(const ops::AttentionProblem& problem);

/// 1 in a dimension in which the bias is alike.
struct BiasSizes {
  std::int64_t batches;
  std::int64_t heads;
  std::int64_t rows;
};
[[nodiscard]] BiasSizes bias_sizes(const ops::AttentionProblem& problem);
/// A bias that is alike for all queries has none.
[[nodiscard]] bool may_have_bias_gradient(const ops::AttentionProblem& problem);

/// The extra stride per group of heads in q or o, in elements: a group's first head
/// lies farther than `strides.head` says by this much for each preceding group. 0:
/// `strides.head` leads to every head.
[[nodiscard]] std::int64_t group_gap(const Problem& problem, const Strides& strides);

/// "bwd bf16 b2 h16/4 sq1024 skv1024 d192/128 causal bshd", and options that are not
/// the default.
[[nodiscard]] std::string to_string(const Problem& problem);

}  // namespace kiln::attention
