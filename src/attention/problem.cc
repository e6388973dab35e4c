#include "attention/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "util/try.h"

namespace kiln::attention {
namespace {

constexpr std::int64_t kMostSize = std::int64_t{1} << 31;
constexpr double kMostElements = 9007199254740992.0;  // 2^53: no memory holds more

Strides strides_of(Layout layout, std::int64_t batch, std::int64_t heads,
                   std::int64_t sequence, std::int64_t dim) {
  switch (layout) {
    case Layout::kSbhd:
      return {heads * dim, dim, batch * heads * dim, 1};
    case Layout::kBhsd:
      return {heads * sequence * dim, sequence * dim, dim, 1};
    case Layout::kThd:
      return {0, dim, heads * dim, 1};
    case Layout::kBshd:
      break;
  }
  return {sequence * heads * dim, dim, heads * dim, 1};
}

template <typename... Values>
tl::unexpected<Error> wrong(std::string_view field, fmt::format_string<Values...> what,
                            Values&&... values) {
  return refuse("problem.{}: {}", field,
                fmt::format(what, std::forward<Values>(values)...));
}

/// Which of two axes is the outer one, by stride. kEither: the strides are equal, or an
/// axis has size 1.
enum class Outer : std::uint8_t { kEither, kFirst, kSecond };
Outer outer(std::int64_t first, std::int64_t second) {
  if (first == second)
    return Outer::kEither;
  return first > second ? Outer::kFirst : Outer::kSecond;
}

/// For batch and sequence, batch and head, sequence and head.
using Order = std::array<Outer, 3>;

Order order_of(const Strides& strides, std::int64_t batch, std::int64_t heads,
               std::int64_t length) {
  const auto either = [](bool any, Outer order) {
    return any ? Outer::kEither : order;
  };
  return {
      either(batch == 1 || length == 1, outer(strides.batch, strides.sequence)),
      either(batch == 1 || heads == 1, outer(strides.batch, strides.head)),
      either(length == 1 || heads == 1, outer(strides.sequence, strides.head)),
  };
}

bool differ(const Order& a, const Order& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && a[i] != Outer::kEither && b[i] != Outer::kEither)
      return true;
  }
  return false;
}

Result<void> check_sizes(const ops::AttentionProblem& problem) {
  const std::initializer_list<std::pair<std::string_view, std::int64_t>> sizes{
      {"batch", problem.batch},
      {"heads", problem.heads},
      {"kv_heads", problem.kv_heads},
      {"sq", problem.sq},
      {"skv", problem.skv},
      {"dqk", problem.dqk},
      {"dv", problem.dv}};
  for (const auto& [field, size] : sizes) {
    if (size < 1 || size > kMostSize)
      return wrong(field, "{} is no size from 1 to {}", size, kMostSize);
  }
  // Keeps strides from overflowing.
  const auto elements = [&](std::int64_t heads, std::int64_t length, std::int64_t dim) {
    return static_cast<double>(problem.batch) * static_cast<double>(heads) *
           static_cast<double>(length) * static_cast<double>(dim);
  };
  if (elements(problem.heads, problem.sq, std::max(problem.dqk, problem.dv)) >
          kMostElements ||
      elements(problem.kv_heads, problem.skv, std::max(problem.dqk, problem.dv)) >
          kMostElements)
    return wrong("batch", "the tensors have more than 2^53 elements");
  if (has_bias_tensor(problem) &&
      elements(problem.heads, problem.sq, problem.skv) > kMostElements)
    return wrong("bias", "the scores have more than 2^53 elements");
  if (problem.heads % problem.kv_heads != 0)
    return wrong("kv_heads", "{} heads of the query are no multiple of {}",
                 problem.heads, problem.kv_heads);
  return {};
}

/// Checks that address computations do not overflow.
Result<void> check_strides(const Problem& problem) {
  const auto check = [](std::string_view tensor, const Strides& strides,
                        std::initializer_list<std::pair<std::int64_t, std::int64_t>> of)
      -> Result<void> {
    for (const auto& [stride, size] : of) {
      if (stride < 0 ||
          static_cast<double>(stride) * static_cast<double>(size) > kMostElements)
        return refuse(
            "{} has the strides {}, {}, {}, {}, {}: none is negative or reaches over "
            "2^53 elements",
            tensor, strides.batch, strides.head, strides.sequence, strides.dim,
            strides.group);
    }
    return {};
  };
  const auto of = [&](std::string_view tensor, const Strides& strides,
                      std::int64_t heads, std::int64_t length, std::int64_t dim) {
    return check(tensor, strides,
                 {{strides.batch, problem.batch},
                  {strides.head, heads},
                  {strides.sequence, length},
                  {strides.dim, dim},
                  {strides.group, problem.kv_heads}});
  };
  if (problem.k.group != 0 || problem.v.group != 0)
    return refuse(
        "k and v have a stride of groups: a head of theirs is one of a group, and its "
        "stride is `head`");
  KILN_TRY(of("q", problem.q, problem.heads, problem.sq, problem.dqk));
  KILN_TRY(of("k", problem.k, problem.kv_heads, problem.skv, problem.dqk));
  KILN_TRY(of("v", problem.v, problem.kv_heads, problem.skv, problem.dv));
  KILN_TRY(of("o", problem.o, problem.heads, problem.sq, problem.dv));
  return of("bias", problem.bias, problem.heads, problem.sq, problem.skv);
}

Result<void> check_bias(const Problem& problem) {
  const Strides& bias = problem.bias;
  if (problem.bias_gradient && problem.pass != Pass::kBackward)
    return refuse("options.bias_gradient: a forward pass has no gradients");
  if (problem.bias_gradient && problem.bias_kind != Bias::kPostScale)
    return refuse("options.bias_gradient: it is of a post_scale bias, not of {}",
                  word_of(problem.bias_kind));
  if (bias == Strides{})
    return {};
  if (!has_bias_tensor(problem))
    return wrong("bias", "strides are those of a post_scale or boolean bias, not of {}",
                 word_of(problem.bias_kind));
  if (bias.dim != 1 || bias.group != 0)
    return wrong("bias",
                 "`dim` is {} and `group` {}: the last dimension is "
                 "contiguous, so they are 1 and 0",
                 bias.dim, bias.group);
  if (problem.bias_gradient && !may_have_bias_gradient(problem))
    return wrong(
        "bias",
        "`sequence` is 0: a bias that is alike for all queries has no gradient "
        "here; give it a row for each");
  return {};
}

Result<void> check_window(const Problem& problem) {
  const std::initializer_list<std::pair<std::string_view, std::int64_t>> sides{
      {"window_left", problem.window_left}, {"window_right", problem.window_right}};
  for (const auto& [field, side] : sides) {
    if (side < -1 || side >= kMostSize - 1)
      return wrong(field, "{} is neither a number of keys nor -1, which is unlimited",
                   side);
  }
  if (is_causal(problem.mask) && problem.window_right > 0)
    return wrong("window_right", "a {} mask lets nothing be seen to the right: 0 or -1",
                 word_of(problem.mask));
  return {};
}

/// A cast, or another language, can pass a value that is no enumerator.
Result<void> check_enumerators(const Problem& problem) {
  if (problem.dtype > DType::kF32)
    return wrong("dtype", "it is none of DType");
  if (problem.layout > Layout::kThd)
    return wrong("layout", "it is none of AttentionLayout");
  if (problem.mask > Mask::kPaddingCausalBottomRight)
    return wrong("mask", "it is none of AttentionMask");
  if (problem.bias_kind > Bias::kBoolean)
    return wrong("bias_kind", "it is none of AttentionBias");
  return {};
}

}  // namespace

Result<void> validate(const Problem& problem) {
  if (problem.dtype == DType::kUnset)
    return wrong("dtype", "it is not set");
  KILN_TRY(check_enumerators(problem));
  KILN_TRY(check_sizes(problem));
  KILN_TRY(check_window(problem));
  KILN_TRY(check_strides(problem));
  if (!(problem.dropout >= 0 && problem.dropout <= 1))
    return wrong("dropout", "{} is no probability from 0 to 1", problem.dropout);
  if (problem.pass == Pass::kBackward && !problem.training)
    return wrong("training", "a backward pass is of training");
  return check_bias(problem);
}

bool has_bias_tensor(const ops::AttentionProblem& problem) {
  return problem.bias_kind == Bias::kPostScale || problem.bias_kind == Bias::kBoolean;
}

Strides bias_strides(const ops::AttentionProblem& problem) {
  if (problem.bias != Strides{})
    return problem.bias;
  return {.head = problem.sq * problem.skv, .sequence = problem.skv, .dim = 1};
}

BiasSizes bias_sizes(const ops::AttentionProblem& problem) {
  const Strides by = bias_strides(problem);
  return {.batches = by.batch == 0 ? 1 : problem.batch,
          .heads = by.head == 0 ? 1 : problem.heads,
          .rows = by.sequence == 0 ? 1 : problem.sq};
}

bool may_have_bias_gradient(const ops::AttentionProblem& problem) {
  return problem.bias_kind == Bias::kPostScale &&
         bias_sizes(problem).rows == problem.sq;
}

bool has_mixed_layouts(const Problem& problem) {
  const auto of = [&](const Strides& strides, std::int64_t heads, std::int64_t length) {
    return order_of(strides, problem.batch, heads, length);
  };
  const Order q = of(problem.q, problem.heads, problem.sq);
  return differ(q, of(problem.k, problem.kv_heads, problem.skv)) ||
         differ(q, of(problem.v, problem.kv_heads, problem.skv));
}

bool is_interleaved(const Problem& problem) {
  return problem.layout == Layout::kThd && problem.q.sequence == problem.k.sequence &&
         problem.q.sequence == problem.v.sequence &&
         problem.q.sequence >= problem.heads * problem.dqk +
                                   problem.kv_heads * (problem.dqk + problem.dv);
}

bool is_padded(Mask mask) {
  return mask == Mask::kPadding || mask == Mask::kPaddingCausal ||
         mask == Mask::kPaddingCausalBottomRight;
}

bool is_causal(Mask mask) {
  return mask != Mask::kNone && mask != Mask::kPadding;
}

bool is_bottom_right(Mask mask) {
  return mask == Mask::kCausalBottomRight || mask == Mask::kPaddingCausalBottomRight;
}

std::int64_t right_bound(const Problem& problem) {
  return is_causal(problem.mask) ? 0 : problem.window_right;
}

bool has_window(const Problem& problem) {
  return problem.window_left >= 0 ||
         (problem.window_right >= 0 && !is_causal(problem.mask));
}

std::int64_t group_gap(const Problem& problem, const Strides& strides) {
  if (strides.group == 0 || problem.kv_heads == 1)
    return 0;
  return strides.group - problem.heads / problem.kv_heads * strides.head;
}

}  // namespace kiln::attention

namespace kiln::ops {

using attention::kMostElements;
using attention::kMostSize;

void set_strides(AttentionProblem& problem) {
  if (!attention::check_sizes(problem)) {
    problem.q = problem.k = problem.v = problem.o = {};  // others would overflow
    return;
  }
  const auto of = [&](std::int64_t heads, std::int64_t sequence, std::int64_t dim) {
    return attention::strides_of(problem.layout, problem.batch, heads, sequence, dim);
  };
  problem.q = of(problem.heads, problem.sq, problem.dqk);
  problem.k = of(problem.kv_heads, problem.skv, problem.dqk);
  problem.v = of(problem.kv_heads, problem.skv, problem.dv);
  problem.o = of(problem.heads, problem.sq, problem.dv);
}

Result<Heads> flattened(const GroupedHeads& grouped) {
  if (grouped.groups < 1 || grouped.heads < 1 || grouped.groups > kMostSize ||
      grouped.heads > kMostSize / grouped.groups)
    return refuse("{} groups of {} heads are no heads: from 1 to {} in all",
                  grouped.groups, grouped.heads, kMostSize);
  for (const std::int64_t stride : {grouped.group_stride, grouped.head_stride}) {
    if (stride < 0 || static_cast<double>(stride) *
                              static_cast<double>(grouped.groups * grouped.heads) >
                          kMostElements)
      return refuse("a stride of {} is negative or reaches over 2^53 elements", stride);
  }
  if (grouped.heads == 1 || grouped.head_stride == 0)
    return Heads{grouped.groups, grouped.group_stride, 0};
  const bool is_apart = grouped.groups != 1 &&
                        grouped.group_stride != grouped.heads * grouped.head_stride;
  return Heads{grouped.groups * grouped.heads, grouped.head_stride,
               is_apart ? grouped.group_stride : 0};
}

}  // namespace kiln::ops
