// The words of the attention problem: what the command line reads and the rules
// compare.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <vector>

#include "attention/problem.h"
#include "util/nearest.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

constexpr std::array<std::string_view, 2> kPasses{"fwd", "bwd"};
constexpr std::array<std::string_view, 6> kMasks{
    "none",    "causal",         "causal_bottom_right",
    "padding", "padding_causal", "padding_causal_bottom_right"};
constexpr std::array<std::string_view, 3> kBiases{"none", "post_scale", "alibi"};
constexpr std::array<std::string_view, 4> kLayouts{"bshd", "sbhd", "bhsd", "thd"};
constexpr std::array<std::string_view, 3> kDTypes{"f16", "bf16", "f32"};

template <typename Enum>
std::string_view word_of(std::span<const std::string_view> words, Enum value) {
  return words[static_cast<std::size_t>(value)];
}

Result<std::size_t> position(std::span<const std::string_view> words,
                             std::string_view word) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == word)
      return i;
  }
  const std::vector<std::string> known(words.begin(), words.end());
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is none of {}{}", word, fmt::join(words, ", "),
                          did_you_mean(word, known)));
}

}  // namespace

std::span<const std::string_view> pass_words() {
  return kPasses;
}
std::span<const std::string_view> mask_words() {
  return kMasks;
}
std::span<const std::string_view> bias_words() {
  return kBiases;
}
std::span<const std::string_view> layout_words() {
  return kLayouts;
}
std::span<const std::string_view> dtype_words() {
  return kDTypes;
}

std::string_view to_string(Pass pass) {
  return word_of(kPasses, pass);
}
std::string_view to_string(Mask mask) {
  return word_of(kMasks, mask);
}
std::string_view to_string(Bias bias) {
  return word_of(kBiases, bias);
}
std::string_view to_string(Layout layout) {
  return word_of(kLayouts, layout);
}
std::string_view dtype_word(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return kDTypes[0];
    case DType::kBf16:
      return kDTypes[1];
    case DType::kF32:
      return kDTypes[2];
    case DType::kUnset:
      break;
  }
  return "unset";
}

Result<Pass> parse_pass(std::string_view word) {
  return static_cast<Pass>(KILN_TRY(position(kPasses, word)));
}
Result<Mask> parse_mask(std::string_view word) {
  return static_cast<Mask>(KILN_TRY(position(kMasks, word)));
}
Result<Bias> parse_bias(std::string_view word) {
  return static_cast<Bias>(KILN_TRY(position(kBiases, word)));
}
Result<Layout> parse_layout(std::string_view word) {
  return static_cast<Layout>(KILN_TRY(position(kLayouts, word)));
}
Result<DType> parse_dtype(std::string_view word) {
  constexpr std::array kTypes{DType::kF16, DType::kBf16, DType::kF32};
  return kTypes[KILN_TRY(position(kDTypes, word))];
}

std::string to_string(const Problem& problem) {
  // Messages say nothing of strides.
  const auto& [dtype, batch, heads, kv_heads, sq, skv, dqk, dv, layout, q, k, v, o,
               mask, window_left, window_right, bias_kind, dropout, bias] =
      problem.common();
  const auto& [pass, training, stats, bias_gradient, deterministic, capture] =
      problem.of_pass();
  std::string text = fmt::format(
      "{} {} b{} h{}/{} sq{} skv{} d{}/{} {} {}", to_string(pass), dtype_word(dtype),
      batch, heads, kv_heads, sq, skv, dqk, dv, to_string(mask), to_string(layout));
  if (window_left != -1 || window_right != -1)
    text += fmt::format(" window {},{}", window_left, window_right);
  if (bias_kind != Bias::kNone)
    text += fmt::format(" {}", to_string(bias_kind));
  if (bias_gradient)
    text += " with its gradient";
  if (dropout > 0)
    text += fmt::format(" dropout {}", dropout);
  if (pass == Pass::kForward && training)
    text += " training";
  if (pass == Pass::kForward && stats)
    text += " stats";
  if (deterministic)
    text += " deterministic";
  if (capture)
    text += " capture";
  return text;
}

}  // namespace kiln::attention
