// The fields of a problem: what keys, rules, messages and the command line call them.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "attention/problem.h"
#include "util/field_count.h"

namespace kiln::attention {

enum class Shown : std::uint8_t {
  kAlways,
  kUnlessUsual,
  kLater,  // likewise, and in keys, too: problems without it keep their keys
};

template <auto kMember>
struct ProblemField {
  std::string_view name;  // "kv_heads"; the flag is --kv-heads
  Shown shown = Shown::kUnlessUsual;
  std::string_view meaning{};  // for --help, behind the words that the flag takes

  [[nodiscard]] const auto& of(const Problem& problem) const {
    return problem.*kMember;
  }
  [[nodiscard]] auto& of(Problem& problem) const { return problem.*kMember; }
};

/// In the order of keys, so a new field comes last.
inline constexpr std::tuple kProblemFields{
    ProblemField<&Problem::pass>{"pass"},
    ProblemField<&Problem::dtype>{"dtype", Shown::kAlways},
    ProblemField<&Problem::layout>{"layout", Shown::kAlways,
                                   "; thd has sequences of their own lengths"},
    ProblemField<&Problem::mask>{"mask", Shown::kAlways},
    ProblemField<&Problem::bias_kind>{"bias"},
    ProblemField<&Problem::batch>{"batch", Shown::kAlways, "Sequences"},
    ProblemField<&Problem::heads>{"heads", Shown::kAlways, "Heads of the query"},
    ProblemField<&Problem::kv_heads>{
        "kv_heads", Shown::kAlways,
        "Heads of key and value (default: as many as of the query)"},
    ProblemField<&Problem::sq>{"sq", Shown::kAlways,
                               "Length of the query; with thd, of the longest query"},
    ProblemField<&Problem::skv>{"skv", Shown::kAlways, "Length of key and value"},
    ProblemField<&Problem::dqk>{"dqk", Shown::kAlways,
                                "Head dimension of query and key"},
    ProblemField<&Problem::dv>{"dv", Shown::kAlways,
                               "Head dimension of value (default: as of the query)"},
    ProblemField<&Problem::window_left>{"window_left"},
    ProblemField<&Problem::window_right>{"window_right"},
    ProblemField<&Problem::training>{"training", Shown::kUnlessUsual,
                                     "A forward pass whose backward pass follows"},
    ProblemField<&Problem::deterministic>{
        "deterministic", Shown::kUnlessUsual,
        "The result must have the same bits at every run"},
    ProblemField<&Problem::stats>{"stats", Shown::kUnlessUsual,
                                  "The softmax statistics (LSE) are computed as well"},
    ProblemField<&Problem::capture>{"capture", Shown::kUnlessUsual,
                                    "The pass runs inside a CUDA graph"},
    ProblemField<&Problem::bias_gradient>{"bias_gradient", Shown::kUnlessUsual,
                                          "The gradient of the bias is computed as "
                                          "well: with --pass bwd --bias post_scale"},
    ProblemField<&Problem::dropout>{"dropout", Shown::kUnlessUsual,
                                    "Probability of dropout"},
    ProblemField<&Problem::q>{"q_strides"},
    ProblemField<&Problem::k>{"k_strides"},
    ProblemField<&Problem::v>{"v_strides"},
    ProblemField<&Problem::o>{"o_strides"},
    ProblemField<&Problem::bias>{"bias_strides", Shown::kLater},
};

/// Whether no member has two rows.
template <auto... kMembers>
consteval bool have_a_row_each(std::tuple<ProblemField<kMembers>...> /*fields*/) {
  const auto rows_of = []<auto kMember>() {
    const auto is_it = []<auto kOther>() {
      if constexpr (std::is_same_v<decltype(kMember), decltype(kOther)>)
        return kMember == kOther ? 1 : 0;
      else
        return 0;
    };
    return (is_it.template operator()<kMembers>() + ...);
  };
  return ((rows_of.template operator()<kMembers>() == 1) && ...);
}
static_assert(have_a_row_each(kProblemFields));
static_assert(std::tuple_size_v<decltype(kProblemFields)> ==
                  field_count<ops::AttentionProblem>() + field_count<PassOptions>(),
              "each field of a problem is in the table");

/// "--kv-heads".
[[nodiscard]] std::string flag_of(std::string_view field);

/// One flag, --window, says both sides.
template <auto kMember>
[[nodiscard]] constexpr bool is_of_window(const ProblemField<kMember>& field) {
  return field.name.starts_with("window_");
}

/// Calls `use` with each field.
template <typename Use>
void for_each_problem_field(const Use& use) {
  std::apply([&](const auto&... field) { (use(field), ...); }, kProblemFields);
}

}  // namespace kiln::attention
